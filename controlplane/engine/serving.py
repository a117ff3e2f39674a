"""Demand that waits gets its places: free ones, then ones that are being released, then reclaimed
ones. What it takes is gone for whoever comes after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controlplane.engine.decisions import PendingDemand, Rejection
from controlplane.engine.jobs import Job
from controlplane.engine.lifecycle import answer
from controlplane.engine.ordering import Demand, units_left
from controlplane.engine.placement import Capacity, PodShape
from controlplane.engine.preemption import reclaim_unit
from controlplane.engine.reasons import Reason, ReasonCode, because

#: a demand lists at most so many jobs that couldn't help
MOST_REJECTED = 20

#: what decides whether a reclaim can help: shape, pods that must come together, priority, whose
Hopeless = dict[tuple[PodShape, int, int, Job | None], list[Rejection]]


def serve(
    demands: Iterable[Demand], jobs: Sequence[Job], capacity: Capacity
) -> list[PendingDemand]:
    """Each demand in turn. One that can't be served holds nothing back: those behind it go on."""
    hopeless: Hopeless = {}
    found = [_serve_one(demand, jobs, capacity, hopeless) for demand in demands]
    return [pending for pending in found if pending is not None]


def _serve_one(
    demand: Demand, jobs: Sequence[Job], capacity: Capacity, hopeless: Hopeless
) -> PendingDemand | None:
    units = units_left(demand)
    if units == 0:
        return None
    at_once = _take(demand, units, capacity, later=False)
    later = _take(demand, units - at_once, capacity, later=True)
    reclaimed, donors, rejected = _reclaim(
        demand, units - at_once - later, jobs, capacity, hopeless
    )
    for donor in donors:
        donor.reason = _gives(donor, demand, units)
    reason = _why_pending(demand, units, at_once, later, reclaimed, donors)
    if demand.job is not None:
        demand.job.rejected.extend(rejected)
        answer(demand.job, demand, at_once=units == at_once, reason=reason)
    return PendingDemand(
        workload_or_pod=demand.name,
        priority=demand.priority,
        pods=units * demand.pods_per_unit,
        requests=dict(demand.shape.requests),
        since=demand.since,
        reason=reason,
        rejected=tuple(rejected),
    )


def _take(demand: Demand, units: int, capacity: Capacity, *, later: bool) -> int:
    """How many of `units` found places, which are now taken."""
    take = capacity.take_later if later else capacity.take_now
    taken = 0
    while taken < units and take(demand.shape, demand.pods_per_unit) is not None:
        taken += 1
    return taken


def _reclaim(
    demand: Demand, units: int, jobs: Sequence[Job], capacity: Capacity, hopeless: Hopeless
) -> tuple[int, list[Job], list[Rejection]]:
    """Units that found places by reclaim, who gave them, and who couldn't.

    A demand like one that found nothing before in this cycle isn't tried again (kueue 9715).
    """
    likeness = (demand.shape, demand.pods_per_unit, demand.priority, demand.job)
    if not demand.reclaims or units == 0:
        return 0, [], []
    if likeness in hopeless:
        return 0, [], hopeless[likeness]
    donors: dict[Job, None] = {}
    rejected: list[Rejection] = []
    found = 0
    while found < units:
        steps, rejected = reclaim_unit(demand, jobs, capacity)
        rejected = rejected[:MOST_REJECTED]
        if not steps:
            hopeless[likeness] = rejected
            break
        donors |= dict.fromkeys(step.job for step in steps)
        found += 1 + _take(demand, units - found - 1, capacity, later=True)
    return found, list(donors), rejected


def _gives(donor: Job, demand: Demand, units: int) -> Reason:
    resource, n = _accelerators(demand)
    return because(
        ReasonCode.SHRINKS_FOR_PRIORITY,
        from_=donor.workload.granted,
        to=donor.target,
        demand=demand.name,
        demand_priority=demand.priority,
        accelerators=units * demand.pods_per_unit * n,
        resource=resource,
        priority=donor.workload.priority,
    )


def _why_pending(
    demand: Demand, units: int, at_once: int, later: int, reclaimed: int, donors: Iterable[Job]
) -> Reason:
    """Where the demand stands after it was served, in pods."""
    size = demand.pods_per_unit
    lacking = (units - at_once - later - reclaimed) * size
    if lacking:
        resource, n = _accelerators(demand)
        return because(
            ReasonCode.NO_CAPACITY,
            placed=units * size - lacking,
            pods=units * size,
            accelerators=lacking * n,
            resource=resource,
        )
    if reclaimed:
        names = sorted(str(donor.workload.key) for donor in donors)
        return because(ReasonCode.RECLAIMS, pods=reclaimed * size, donors=", ".join(names))
    if later:
        return because(ReasonCode.WAITS_FOR_RELEASE, pods=later * size)
    return because(ReasonCode.FITS)


def _accelerators(demand: Demand) -> tuple[str, int]:
    """The accelerator that a pod of the demand asks for, and how many."""
    return (demand.shape.accelerators or (("accelerators", 0),))[0]
