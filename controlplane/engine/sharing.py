"""What each elastic job's equals leave it: the jobs of one priority, on one kind of accelerator,
share what is free and what they hold, first by queue (weights), then by the queue's objective.

The outcome is an ideal that knows nothing of nodes; `elasticity` moves towards it as far as
placement, quota and damping allow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from controlplane.engine.curves import Curve
from controlplane.engine.fairness import Part, split
from controlplane.engine.jobs import Job
from controlplane.engine.objectives import Claim, share
from controlplane.engine.policy import PolicySet
from controlplane.engine.queues import QueuePolicy
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.types import Objective

_NO_QUEUE = QueuePolicy(name="")


@dataclass(slots=True)
class Group:
    """Jobs of one priority that want one resource. `waiting`: those that aren't running yet and
    take part with their minimum."""

    priority: int
    resource: str
    jobs: list[Job] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)

    def held(self, job: Job) -> int:
        return 0 if id(job) in self.waiting else job.target


class Memo:
    """Curves and shares that were reckoned before. A share depends on its claims alone; whoever
    plans again and again keeps one of these."""

    def __init__(self) -> None:
        self._curves: dict[str, tuple[object, object, Curve]] = {}
        self._shares: dict[tuple[object, ...], tuple[object, dict[str, int]]] = {}

    def curve(self, job: Job) -> Curve:
        report = job.report
        measured = report.throughput if report else {}
        deviation = report.deviation if report else {}
        known = self._curves.get(job.name)
        if known is not None and known[0] is measured and known[1] is deviation:
            return known[2]
        curve = Curve.fit(measured, deviation)
        self._curves[job.name] = (measured, deviation, curve)
        return curve

    def shared(
        self, where: tuple[object, ...], claims: list[Claim], units: int, objective: Objective
    ) -> dict[str, int]:
        asked = (claims, units, objective)
        known = self._shares.get(where)
        if known is not None and known[0] == asked:
            return known[1]
        found = share(claims, units, objective)
        self._shares[where] = (asked, found)
        return found


class Sharing:
    """Ideals of one cycle. `frozen`: jobs that keep what they have; `capped`: jobs that may not
    have more than they hold."""

    def __init__(self, policies: PolicySet, quota: QuotaLedger, memo: Memo) -> None:
        self._policies, self._quota, self.memo = policies, quota, memo

    def ideals(
        self,
        group: Group,
        units: int,
        frozen: set[int] | None = None,
        capped: set[int] | None = None,
        step: str = "",
    ) -> dict[int, int]:
        """id of a job -> replicas. `units`: accelerators that the whole group may have."""
        queues = _by_queue(group.jobs)
        budgets = self._budgets(group, queues, units)
        found: dict[int, int] = {}
        for name, jobs in queues.items():
            queue = self._policies.queues.get(name, _NO_QUEUE)
            claims = [
                self._claim(group, queue, job, frozen or set(), capped or set()) for job in jobs
            ]
            where = (group.priority, group.resource, name, step)
            sizes = self.memo.shared(where, claims, budgets[name], queue.objective)
            found.update({id(job): sizes[job.name] for job in jobs})
        return found

    def _budgets(self, group: Group, queues: dict[str, list[Job]], units: int) -> dict[str, int]:
        """Accelerators for each queue, by weight; never more than its quota and its jobs allow."""
        parts, ceilings = {}, {}
        for name, jobs in queues.items():
            held = sum(group.held(job) * job.accelerators[1] for job in jobs)
            ceiling = sum(job.sizes[-1] * job.accelerators[1] for job in jobs)
            available = self._quota.available(name, group.resource) if name else None
            if available is not None:
                ceiling = min(ceiling, held + available)
            queue = self._policies.queues.get(name, _NO_QUEUE)
            ceilings[name] = max(0, ceiling)
            parts[name] = Part(weight=queue.weight, floor=0, ceiling=ceilings[name])
        if len(parts) == 1:
            return {name: min(units, ceiling) for name, ceiling in ceilings.items()}
        return split(units, parts)

    def _claim(
        self, group: Group, queue: QueuePolicy, job: Job, frozen: set[int], capped: set[int]
    ) -> Claim:
        held = group.held(job)
        sizes = job.sizes
        if id(job) in capped:
            sizes = tuple(size for size in sizes if size <= held) or sizes[:1]
        timed = queue.objective is Objective.COMPLETION_TIME
        report = job.report
        return Claim(
            key=job.name,
            sizes=sizes,
            held=held,
            per_replica=job.accelerators[1],
            weight=job.workload.weight,
            rate=self.memo.curve(job).rate,
            remaining=report.remaining if report and timed else None,
            attained=(report.attained or 0.0) if report and timed else 0.0,
            pause_s=(report.resize_cost_s or 0.0) if report else 0.0,
            floor=min(held, job.minimum),
            frozen=id(job) in frozen,
        )


def _by_queue(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        found[job.workload.queue].append(job)
    return dict(sorted(found.items()))


def groups(jobs: Sequence[Job], waiting: Iterable[Job]) -> list[Group]:
    """Groups of jobs that may share, those of the highest priority first."""
    found: dict[tuple[int, str], Group] = {}
    late = {id(job) for job in waiting}
    for job in jobs:
        key = (-job.workload.priority, job.accelerators[0])
        group = found.setdefault(key, Group(job.workload.priority, job.accelerators[0]))
        group.jobs.append(job)
        if id(job) in late:
            group.waiting.add(id(job))
    return [found[key] for key in sorted(found)]
