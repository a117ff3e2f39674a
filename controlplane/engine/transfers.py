"""Between equals: a job above its share gives to one below, never below its own share."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.engine.jobs import Job
from controlplane.engine.ordering import Demand, DemandKind
from controlplane.engine.placement import Capacity
from controlplane.engine.policy import PolicySet
from controlplane.engine.preemption import carry_out, find_steps
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.types import Objective, ReclaimPolicy
from controlplane.engine.victims import Donors, least_in_a_cycle


class _Equals(Donors):
    """Jobs of one priority, each down to its share. `level`: the receiver's queue, and the
    accelerators for its weight that it will have: under fair share nobody of that queue gives what
    would leave him worse off."""

    level: tuple[str, float] | None = None

    def floor(self, job: Job) -> int:
        if job.share is None:
            return job.target
        least = max(job.share, least_in_a_cycle(job, self._ratio, job.minimum))
        if self.level is None or self.level[0] != job.workload.queue:
            return min(job.target, least)
        size = job.target
        while size > least and level_of(job, size) > self.level[1]:
            lower = job.lower_size(size)
            if lower is None or lower < least:
                break
            size = lower
        return size

    def levels(self, demand: Demand) -> list[int]:
        return self.priorities

    def below(self, demand: Demand, level: int | None = None) -> list[Job]:
        return [j for j in self.jobs if j is not demand.job and j.target > self.floor(j)]


def level_of(job: Job, size: int) -> float:
    """Accelerators for its weight that a job has at a size."""
    return size * job.accelerators[1] / job.workload.weight


class Transfers:
    """What equals give each other in one cycle."""

    def __init__(
        self,
        givers: Sequence[Job],
        policies: PolicySet,
        quota: QuotaLedger,
        objective: Objective,
    ) -> None:
        self._donors = _Equals(givers, policies, quota)
        self._objective = objective
        self._quota = quota

    def for_(self, job: Job, size: int, base: int, capacity: Capacity, debt: int) -> Reason | None:
        """Frees places, later, for a job to have `size` replicas instead of `base`; how, or None
        if that can't be. `debt`: accelerators that are kept free and not there yet, to which what
        comes free goes first."""
        if not self._donors.jobs:
            return None
        pods = (size - base) * job.pods_per_replica
        demand = Demand(
            kind=DemandKind.START if not base else DemandKind.REPAIR,
            name=job.name,
            workload=job.key,
            priority=job.workload.priority,
            since=job.workload.created_at,
            shape=job.shape,
            pods_per_unit=pods,
            units=1,
            reclaims=ReclaimPolicy.RECLAIM_ELASTIC,
            job=job,
            queue=job.workload.queue,
            within=job.within,
        )
        level = None
        if self._objective is Objective.FAIR_SHARE:
            level = (job.workload.queue, level_of(job, size))
        if self._donors.level != level:
            self._donors.level = level
            self._donors.forget()
        if capacity.take_later(job.shape, pods, job.within) is not None:
            return because(ReasonCode.WAITS_FOR_RELEASE, pods=pods)
        steps, within = find_steps(demand, self._donors, capacity)
        given = sum(step.cost for step in steps)
        if not steps or given < debt:
            return None
        carry_out(steps, self._donors, capacity)
        capacity.take_later(job.shape, pods, within)
        for step in steps:
            donor = step.job
            self._quota.give(donor.workload.queue, donor.amounts(step.before - step.after))
            donor.reason = self._gives(donor, job)
        donors = ", ".join(sorted({step.job.name for step in steps}))
        return because(ReasonCode.RECLAIMS, pods=pods, donors=donors)

    def _gives(self, donor: Job, receiver: Job) -> Reason:
        return because(
            ReasonCode.SHRINKS_FOR_SHARE,
            from_=donor.workload.granted,
            to=donor.target,
            receiver=receiver.name,
            objective=str(self._objective),
        )
