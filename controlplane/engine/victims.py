"""Who may give places back, how much, and what each step of it costs.

A step takes an elastic job of lower priority from one valid size to a lower one; where the demand's
class preempts whole jobs, and elastic jobs aren't enough, also to 0 (suspended).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from controlplane.engine.decisions import Rejection
from controlplane.engine.jobs import Job
from controlplane.engine.nodetable import Column
from controlplane.engine.ordering import Demand
from controlplane.engine.placement import Capacity
from controlplane.engine.policy import PolicySet
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import Pod
from controlplane.engine.types import ReclaimPolicy

#: a demand lists at most so many jobs that couldn't help: those of the lowest priority
MOST_REJECTED = 20


@dataclass(frozen=True, slots=True)
class Step:
    """One job gives back the replicas from `before` down to `after`: valid sizes, or 0."""

    job: Job
    before: int
    after: int

    @property
    def freed(self) -> list[Pod]:
        return self.job.freed_by(self.before, self.after)

    @property
    def cost(self) -> int:
        """Accelerators that stop working."""
        return len(self.freed) * sum(n for _, n in self.job.shape.accelerators)


class Donors:
    """Every job that may give in this cycle, those of the lowest priority first; among equals the
    one furthest above its minimum, then by name."""

    def __init__(
        self,
        jobs: Sequence[Job],
        policies: PolicySet,
        quota: QuotaLedger,
        *,
        whole: bool = False,
        queue: str = "",
    ) -> None:
        """`whole`: jobs give up all that they have. `queue`: whose demand it is for."""
        self.whole, self.quota, self.policies = whole, quota, policies
        self._queue = queue
        self._ratio = policies.cluster.max_disruption_ratio
        self._all = [job for job in jobs if _takes_part(job)]
        able = [job for job in self._all if may_give(job) and self.floor(job) < job.target]
        self.jobs = sorted(able, key=lambda j: (j.workload.priority, j.minimum - j.target, j.name))
        self.priorities = sorted({job.workload.priority for job in self.jobs})
        self._columns: dict[int, dict[str, Column]] = {}
        self._at: dict[str, list[tuple[Job, Pod]]] | None = None

    def floor(self, job: Job) -> int:
        """The least size that it may be left with."""
        least = max(0 if self.whole else job.minimum, self._nominal_floor(job))
        return max(least, least_in_a_cycle(job, self._ratio, least))

    def lower(self, job: Job, than: int) -> int | None:
        """The next size that it may fall to; None at its floor."""
        size = job.lower_size(than)
        if size is None and self.whole and than > 0:
            size = 0
        return size if size is not None and size >= self.floor(job) else None

    def below(self, demand: Demand, level: int | None = None) -> list[Job]:
        """Donors for a demand, up to a priority level if one is given."""
        top = demand.priority if level is None else min(demand.priority, level + 1)
        found = []
        for job in self.jobs:
            if job.workload.priority >= top:
                break
            if job is not demand.job and job.target > self.floor(job):
                found.append(job)
        return found

    def levels(self, demand: Demand) -> list[int]:
        """Priorities of those who may give, the lowest first."""
        return [p for p in self.priorities if p < demand.priority]

    def surplus(self, level: int, capacity: Capacity) -> dict[str, Column]:
        """What all donors up to a priority could still free on each node, by resource."""
        found = self._columns.get(level)
        if found is None:
            found = self._columns[level] = {}
            for job in self.jobs:
                if job.workload.priority > level:
                    break
                for pod in job.freed_by(job.target, self.floor(job)):
                    _add(found, pod, capacity, 1)
        return found

    def gave(self, step: Step, capacity: Capacity) -> None:
        """What a step has freed can't be freed again."""
        for level, columns in self._columns.items():
            if level >= step.job.workload.priority:
                for pod in step.freed:
                    _add(columns, pod, capacity, -1)

    def on(self, node: str) -> list[tuple[Job, Pod]]:
        """Pods on a node that leave if their job gives all that it may (or has, meanwhile)."""
        if self._at is None:
            self._at = defaultdict(list)
            for job in self.jobs:
                for pod in job.freed_by(job.target, self.floor(job)):
                    if pod.node is not None:
                        self._at[pod.node].append((job, pod))
        return self._at.get(node, [])

    def forget(self) -> None:
        """Somebody else has taken from these jobs: what they can free is reckoned anew."""
        self._columns.clear()
        self._at = None

    def _nominal_floor(self, job: Job) -> int:
        """Replicas within the nominal quota of a queue that keeps it against others; 0: it
        doesn't."""
        queue = self.policies.queues.get(job.workload.queue)
        if queue is None or not queue.protect_nominal or queue.name == self._queue:
            return 0
        resource, each = job.accelerators
        kept = job.target - self.quota.borrowed(queue.name, resource) // max(1, each)
        at = bisect_left(job.sizes, kept)
        return job.sizes[at] if at < len(job.sizes) else job.target

    def keeps_nominal(self, steps: Iterable[Step]) -> bool:
        """Whether steps together leave every protected queue its nominal quota."""
        given: dict[tuple[str, str], int] = defaultdict(int)
        for step in steps:
            if self._nominal_floor(step.job):
                resource, each = step.job.accelerators
                key = (step.job.workload.queue, resource)
                given[key] += (step.before - step.after) * each
        return all(n <= self.quota.borrowed(*key) for key, n in given.items())

    # -- why the others don't ----------------------------------------------------------------

    def rejected(self, demand: Demand, used: Iterable[Job]) -> tuple[Rejection, ...]:
        """Why each of the jobs of the lowest priority could not help (more)."""
        skip = {id(job) for job in used}
        why_not, useless = [], []
        for job in _last(self._all, MOST_REJECTED):
            if job is demand.job or id(job) in skip:
                continue
            why = self.why_not(job, demand)
            if why is not None:
                why_not.append(Rejection(job.name, why))
            else:
                useless.append(Rejection(job.name, self._useless(job, demand)))
        return tuple(why_not + useless)

    def _useless(self, job: Job, demand: Demand) -> Reason:
        floor = self.floor(job)
        if floor > max(0 if self.whole else job.minimum, self._nominal_floor(job)):
            granted = job.workload.granted
            return because(ReasonCode.DISRUPTION_BOUND, most=granted - floor, running=granted)
        return because(ReasonCode.FREES_NOTHING_USEFUL, to=floor, demand=demand.name)

    def why_not(self, job: Job, demand: Demand) -> Reason | None:
        workload = job.workload
        if demand.reclaims is ReclaimPolicy.NEVER:
            return because(ReasonCode.MAY_NOT_PREEMPT, priority_class=demand.priority_class)
        if workload.priority >= demand.priority:
            return because(
                ReasonCode.PRIORITY_NOT_LOWER,
                priority=workload.priority,
                demand_priority=demand.priority,
            )
        if not may_give(job):
            return because(ReasonCode.RESIZE_UNDER_WAY, to=job.target)
        if job.target > self.floor(job):
            return None
        if self._nominal_floor(job) >= job.target > job.minimum:
            return because(ReasonCode.NOMINAL_KEPT, queue=workload.queue)
        return because(ReasonCode.AT_MINIMUM, min=job.minimum)


def _takes_part(job: Job) -> bool:
    return bool(job.sizes) and not (job.workload.finished or job.workload.suspended)


def least_in_a_cycle(job: Job, ratio: float, least: int) -> int:
    """The least size that one cycle may leave a job when it may take so large a part of its
    replicas (max_disruption_ratio): a valid one, and always one step down, as far as `least`."""
    if ratio >= 1:
        return least
    kept = job.workload.granted - math.floor(job.workload.granted * ratio + 1e-9)
    at = bisect_left(job.sizes, kept)
    size = job.sizes[at] if at < len(job.sizes) else job.target
    one_step = job.lower_size(job.workload.granted)
    return max(least, min(size, 0 if one_step is None else one_step))


def may_give(job: Job) -> bool:
    """Free to change; or growing right now: a growth that was written gives way to a reclaim,
    which never waits for it."""
    if job.fixed is None:
        return True
    flight = job.in_flight
    return (
        flight is not None
        and flight.state == "applied"
        and flight.to_replicas > flight.from_replicas
        and job.workload.granted == flight.to_replicas
    )


def _add(columns: dict[str, Column], pod: Pod, capacity: Capacity, sign: int) -> None:
    i = capacity.table.position.get(pod.node or "")
    if i is None:
        return
    for name, n in pod.requests.items():
        if name not in columns:
            columns[name] = np.zeros(len(capacity.table), dtype=np.int64)
        columns[name][i] += sign * n


def _last(jobs: Sequence[Job], most: int) -> Iterator[Job]:
    return iter(jobs[max(0, len(jobs) - most) :])
