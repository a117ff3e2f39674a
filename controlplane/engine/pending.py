"""What is said of a demand that was served: where it stands, and what a reclaim for it means."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.engine.decisions import PendingDemand, Rejection
from controlplane.engine.jobs import Job
from controlplane.engine.ordering import Demand
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import DemandHistory
from controlplane.engine.types import Objective
from controlplane.engine.victims import Step

_NEVER_SEEN = DemandHistory()
#: a start that found its places
STARTED = (ReasonCode.ADMITTED, ReasonCode.GROWS_TO_MINIMUM)


@dataclass(slots=True)
class Served:
    """How one demand was served, in units. `steps`: what others give for it. `quota_missing`:
    accelerators that its queue may not use."""

    demand: Demand
    units: int
    at_once: int = 0
    later: int = 0
    reclaimed: int = 0
    reserved: int = 0
    steps: list[Step] = field(default_factory=list)
    rejected: tuple[Rejection, ...] = ()
    quota_missing: int = 0
    held_back: Reason | None = None
    #: there are places, but who gets them is for the queue's objective to say
    deferred: bool = False
    reason: Reason = field(default_factory=lambda: because(ReasonCode.FITS))
    history: DemandHistory = _NEVER_SEEN

    @property
    def lacking(self) -> int:
        """Units without a place."""
        return self.units - self.at_once - self.later - self.reclaimed


def pending_demand(served: Served, unblock: tuple[Reason, ...]) -> PendingDemand:
    demand = served.demand
    return PendingDemand(
        workload_or_pod=demand.name,
        priority=demand.priority,
        pods=served.units * demand.pods_per_unit,
        requests=dict(demand.shape.requests),
        since=demand.since,
        reason=served.reason,
        rejected=served.rejected,
        unblock=unblock,
        history=served.history,
    )


def take_turn(served: Served) -> None:
    """What a start is told whose places were for its queue's objective to give, once that has."""
    job = served.demand.job
    if not served.deferred or job is None:
        return
    if job.reason is not None and job.reason.code in STARTED:
        served.reason = because(ReasonCode.FITS)
        return
    objective = str(Objective.COMPLETION_TIME)
    served.reason = because(
        ReasonCode.WAITS_FOR_SHARE, objective=objective, priority=job.workload.priority
    )
    if job.reason is None or job.reason.code is ReasonCode.WAITS_FOR_MINIMUM:
        job.reason = served.reason


def gives(job: Job, demand: Demand, units: int) -> Reason:
    resource, n = demand.accelerator
    accelerators = units * demand.pods_per_unit * n
    if job.target == 0:
        return because(
            ReasonCode.PREEMPTED,
            from_=job.workload.granted,
            demand=demand.name,
            demand_priority=demand.priority,
            accelerators=accelerators,
            resource=resource,
        )
    return because(
        ReasonCode.SHRINKS_FOR_PRIORITY,
        from_=job.workload.granted,
        to=job.target,
        demand=demand.name,
        demand_priority=demand.priority,
        accelerators=accelerators,
        resource=resource,
        priority=job.workload.priority,
    )


def why_pending(served: Served) -> Reason:
    """Where the demand stands after it was served, in pods."""
    demand, size = served.demand, served.demand.pods_per_unit
    if served.reserved:
        pods = served.lacking * size
        return because(ReasonCode.RESERVES, reserved=served.reserved, pods=pods)
    if served.lacking:
        resource, n = demand.accelerator
        return because(
            ReasonCode.NO_CAPACITY,
            placed=(served.units - served.lacking) * size,
            pods=served.units * size,
            accelerators=served.lacking * size * n,
            resource=resource,
        )
    if served.reclaimed:
        whole = sorted({step.job.name for step in served.steps if step.after == 0})
        if whole:
            pods = served.reclaimed * size
            return because(ReasonCode.PREEMPTS, pods=pods, victims=", ".join(whole))
        names = sorted({step.job.name for step in served.steps})
        return because(ReasonCode.RECLAIMS, pods=served.reclaimed * size, donors=", ".join(names))
    if served.later:
        return because(ReasonCode.WAITS_FOR_RELEASE, pods=served.later * size)
    return because(ReasonCode.FITS)
