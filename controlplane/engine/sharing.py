"""What each elastic job's equals leave it: the jobs of one priority, on one kind of accelerator,
share what is free and what they hold, first by queue (weights), then by the queue's objective.

The outcome is an ideal that knows nothing of nodes; `elasticity` moves towards it as far as
placement, quota and damping allow.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from controlplane.engine.curves import Curve
from controlplane.engine.fairness import Part, split
from controlplane.engine.jobs import Job
from controlplane.engine.objectives import Claim, share
from controlplane.engine.policy import PolicySet
from controlplane.engine.queues import QueuePolicy
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.snapshot import TrainerReport
from controlplane.engine.types import Objective

Ideals = dict[int, int]

#: a step must add this part of what its accelerators would if throughput grew with them: just
#: above what noise can look like on a flat curve (curves.LEAST_SLOPE)
LEAST_EFFICIENCY = 0.06

_NOTHING: Mapping[int, float] = {}
_NO_QUEUE = QueuePolicy(name="")


@dataclass(slots=True)
class Group:
    """Jobs of one priority that want one resource. `waiting`: those that aren't running yet and
    take part with their minimum. `coming`: those that start just now, and will grow once they
    run."""

    priority: int
    resource: str
    jobs: list[Job] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    coming: set[int] = field(default_factory=set)

    def held(self, job: Job) -> int:
        """The valid size that it has; 0 while it waits for its minimum."""
        return 0 if id(job) in self.waiting else job.target

    def base(self, job: Job) -> int:
        """Replicas that it has, fewer than its minimum too."""
        starts = job.workload.suspended and id(job) not in self.coming
        return 0 if starts else job.target


class Memo:
    """Curves and shares that were reckoned before. A share depends on its claims alone; whoever
    plans again and again keeps one of these."""

    def __init__(self) -> None:
        self._curves: dict[str, tuple[TrainerReport | None, Curve]] = {}
        self._useful: dict[str, tuple[Curve, tuple[int, ...], tuple[int, ...]]] = {}
        self._claims: dict[str, tuple[tuple[object, ...], Claim]] = {}
        self._shares: dict[tuple[object, ...], tuple[object, dict[str, int]]] = {}

    def forget_all_but(self, jobs: Sequence[Job]) -> None:
        """Jobs come and go: what is kept doesn't grow with those that have gone."""
        if len(self._curves) > 2 * len(jobs) + 1000:
            for kept in (self._curves, self._useful, self._claims, self._shares):
                kept.clear()

    def curve(self, job: Job) -> Curve:
        report = job.report
        known = self._curves.get(job.name)
        if known is not None and known[0] is report:
            return known[1]
        if report is None:
            curve = Curve.fit(_NOTHING, _NOTHING)
        elif known is not None and _same_curve(known[0], report):
            curve = known[1]
        else:
            curve = Curve.fit(report.throughput, report.deviation)
        self._curves[job.name] = (report, curve)
        return curve

    def useful(self, job: Job) -> tuple[int, ...]:
        """Valid sizes that bring something over every smaller one: with throughput that falls from
        4 to 5 replicas and rises again at 8, that is 4 and 8."""
        curve = self.curve(job)
        known = self._useful.get(job.name)
        if known is not None and known[0] is curve and known[1] == job.sizes:
            return known[2]
        best = job.minimum
        found = [best]
        for size in job.sizes[1:]:
            gain = curve.rate(size) / curve.rate(best) - 1
            if gain >= LEAST_EFFICIENCY * (size / best - 1):
                found.append(size)
                best = size
        self._useful[job.name] = (curve, job.sizes, tuple(found))
        return tuple(found)

    def claim(self, job: Job, held: int, timed: bool) -> Claim:
        """A job's claim. `timed`: what it has left to do counts."""
        report = job.report if timed else None
        curve = self.curve(job)
        pause = (job.report.resize_cost_s or 0.0) if job.report else 0.0
        of = (job.workload, job.sizes, held, curve, report, pause)
        known = self._claims.get(job.name)
        if known is not None and known[0] == of:
            return known[1]
        useful = self.useful(job)
        claim = Claim(
            key=job.name,
            sizes=useful if held in (0, *useful) else tuple(sorted({*useful, held})),
            held=held,
            per_replica=job.accelerators[1],
            weight=job.workload.weight,
            rate=curve.rate,
            remaining=report.remaining if report else None,
            attained=(report.attained or 0.0) if report else 0.0,
            pause_s=pause,
            floor=min(held, job.minimum),
        )
        self._claims[job.name] = (of, claim)
        return claim

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


def _same_curve(before: TrainerReport | None, report: TrainerReport) -> bool:
    """Whether a newer report has the very measurements of one before."""
    if before is None:
        return False
    return before.throughput is report.throughput and before.deviation is report.deviation


class Sharing:
    """The ideals of one group: what each of its jobs should have of `units` accelerators."""

    def __init__(
        self, group: Group, units: int, policies: PolicySet, quota: QuotaLedger, memo: Memo
    ) -> None:
        self._group, self._policies, self._memo = group, policies, memo
        self._queues = _by_queue(group.jobs)
        self._budgets = self._split(units, quota)
        self._claims = {
            name: [memo.claim(job, group.held(job), self._timed(name)) for job in jobs]
            for name, jobs in self._queues.items()
        }
        for name in self._queues:
            self._claims[name] = self._with_floor(name, self._claims[name])

    def _with_floor(self, name: str, claims: list[Claim]) -> list[Claim]:
        """Nobody is taken below the part of an equal share that the queue promises."""
        part = self._queue(name).share_floor
        if not part:
            return claims
        where = (self._group.priority, self._group.resource, name, "floor")
        equal = self._memo.shared(where, claims, self._budgets[name], Objective.FAIR_SHARE)
        raised = []
        for claim in claims:
            bound = min(claim.held, math.floor(equal[claim.key] * part + 1e-9))
            size = max((size for size in claim.sizes if size <= bound), default=0)
            raised.append(dataclasses.replace(claim, floor=max(claim.floor, size)))
        return raised

    def ideals(self, frozen: Set[int] = frozenset(), capped: Set[int] = frozenset()) -> Ideals:
        """id of a job -> replicas. `frozen`: jobs that keep what they have; `capped`: jobs that may
        not have more than they hold."""
        found: Ideals = {}
        step = "wish" if not frozen and not capped else "share"
        for name, jobs in self._queues.items():
            claims = self._claims[name]
            if frozen or capped:
                claims = [
                    _held(claim, id(job) in frozen) if id(job) in frozen | capped else claim
                    for job, claim in zip(jobs, claims, strict=True)
                ]
            where = (self._group.priority, self._group.resource, name, step)
            objective = self._queue(name).objective
            sizes = self._memo.shared(where, claims, self._budgets[name], objective)
            for job in jobs:
                found[id(job)] = sizes[job.name]
        return found

    def _queue(self, name: str) -> QueuePolicy:
        return self._policies.queues.get(name, _NO_QUEUE)

    def _split(self, units: int, quota: QuotaLedger) -> dict[str, int]:
        """Accelerators for each queue, by weight; never more than its quota and its jobs allow, nor
        less than what its jobs keep anyhow."""
        parts = {}
        for name, jobs in self._queues.items():
            held = sum([self._group.base(job) * job.accelerators[1] for job in jobs])
            floor = sum([self._floor(job) * job.accelerators[1] for job in jobs])
            ceiling = sum([job.sizes[-1] * job.accelerators[1] for job in jobs])
            available = quota.available(name, self._group.resource) if name else None
            if available is not None:
                ceiling = min(ceiling, held + available)
            parts[name] = Part(
                weight=self._queue(name).weight, floor=floor, ceiling=max(floor, ceiling)
            )
        return split(units, parts)

    def _floor(self, job: Job) -> int:
        return min(self._group.held(job), job.minimum)

    def _timed(self, name: str) -> bool:
        return self._queue(name).objective is Objective.COMPLETION_TIME


def _held(claim: Claim, frozen: bool) -> Claim:
    """A claim that keeps what it has, or may only fall."""
    if frozen:
        return dataclasses.replace(claim, frozen=True)
    sizes = tuple(size for size in claim.sizes if size <= claim.held)
    return dataclasses.replace(claim, sizes=sizes or claim.sizes[:1])


def _by_queue(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        found[job.workload.queue].append(job)
    return dict(sorted(found.items()))


def groups(jobs: Sequence[Job], waiting: Iterable[Job], coming: Iterable[Job]) -> list[Group]:
    """Groups of jobs that may share, those of the highest priority first."""
    found: dict[tuple[int, str], Group] = {}
    late = {id(job) for job in waiting}
    starting = {id(job) for job in coming}
    for job in jobs:
        key = (-job.workload.priority, job.accelerators[0])
        group = found.setdefault(key, Group(job.workload.priority, job.accelerators[0]))
        group.jobs.append(job)
        if id(job) in late:
            group.waiting.add(id(job))
        elif id(job) in starting:
            group.coming.add(id(job))
    return [found[key] for key in sorted(found)]
