"""One planning cycle: a snapshot, policies and the time in; decisions with reasons out. Pure.

The steps of DESIGN.md, Planning, in their order: each is a function that can be read alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine.accounting import account
from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.decisions import Decision, PendingDemand, Plan, Rejection
from controlplane.engine.elasticity import grow
from controlplane.engine.failures import note_shortage, shrink_after_fault
from controlplane.engine.jobs import Job, load_jobs
from controlplane.engine.ordering import Demand, DemandKind, demands, units_left
from controlplane.engine.placement import Capacity
from controlplane.engine.policy import PolicySet
from controlplane.engine.preemption import reclaim_unit
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.serialize import canonical, digest
from controlplane.engine.snapshot import ClusterSnapshot

__all__ = ["Decision", "PendingDemand", "Plan", "Rejection", "plan"]

#: an observation older than this is no ground for a decision, seconds
STALE_S = 30.0


def plan(snapshot: ClusterSnapshot, policies: PolicySet, now: float) -> Plan:
    """Decide every managed workload's size. Same input, same output, in whatever order the
    snapshot lists its parts. Without commands when the snapshot is incomplete or stale."""
    snapshot = canonical(snapshot)
    jobs = load_jobs(snapshot, policies)
    why_not = _unusable(snapshot, now)
    if why_not is not None:
        for job in jobs:
            job.reason, job.target = why_not, job.workload.granted
            job.growth_wanted_since = job.history.growth_wanted_since
            job.short_since = job.history.short_since
        return _result(snapshot, policies, now, jobs, [], None)
    capacity = Capacity.of(snapshot)
    _release_leaving(jobs, capacity)
    for job in jobs:
        note_shortage(job, now)
        _to_valid_size(job, capacity)
    due = [shrink_after_fault(job, capacity, now) for job in jobs]
    pending = [_serve(demand, jobs, capacity) for demand in demands(snapshot, jobs)]
    due.append(grow(jobs, capacity, now))
    wake = min((at for at in due if at is not None), default=None)
    return _result(snapshot, policies, now, jobs, [p for p in pending if p is not None], wake)


def _unusable(snapshot: ClusterSnapshot, now: float) -> Reason | None:
    if not snapshot.complete:
        return because(ReasonCode.SNAPSHOT_INCOMPLETE)
    age = now - snapshot.taken_at
    if age > STALE_S:
        return because(ReasonCode.SNAPSHOT_STALE, age_s=float(age))
    return None


def _release_leaving(jobs: Iterable[Job], capacity: Capacity) -> None:
    """Replicas beyond what is granted leave, though nothing shows it yet."""
    for job in jobs:
        size = 0 if job.workload.suspended else min(job.target, job.workload.granted)
        for pod in job.leaving(size):
            capacity.release(pod)


def _to_valid_size(job: Job, capacity: Capacity) -> None:
    """A size that the policy doesn't know (somebody scaled by hand, or the policy changed) falls
    to the next lower valid one."""
    if job.fixed is not None or job.workload.suspended or job.policy is None:
        return
    lower = job.lower_size()
    if job.target in job.sizes or lower is None:
        return
    job.reason = because(
        ReasonCode.SHRINKS_TO_POLICY, from_=job.target, to=lower, policy=job.policy.name
    )
    for pod in job.leaving(lower):
        capacity.release(pod)
    job.target = lower


def _serve(demand: Demand, jobs: list[Job], capacity: Capacity) -> PendingDemand | None:
    """Find places for one demand: free ones, then ones that are being released, then reclaimed
    ones. What it takes is gone for whoever comes after."""
    units = units_left(demand)
    if units == 0:
        return None
    at_once = _take(demand, units, capacity, later=False)
    later = _take(demand, units - at_once, capacity, later=True)
    donors: dict[str, Job] = {}
    rejected: list[Rejection] = []
    reclaimed = 0
    while demand.reclaims and at_once + later + reclaimed < units:
        steps, rejected = reclaim_unit(demand, jobs, capacity)
        if not steps:
            break
        reclaimed += 1
        donors |= {str(step.job.workload.key): step.job for step in steps}
        reclaimed += _take(demand, units - at_once - later - reclaimed, capacity, later=True)
    for donor in donors.values():
        donor.reason = _gives(donor, demand, units)
    reason = _why_pending(demand, units, at_once, later, reclaimed, donors)
    if demand.job is not None:
        _answer(demand.job, demand, units == at_once, reason, rejected)
    return PendingDemand(
        workload_or_pod=demand.name,
        priority=demand.priority,
        pods=units * demand.pods_per_unit,
        requests=dict(demand.shape.requests),
        since=demand.since,
        reason=reason,
    )


def _take(demand: Demand, units: int, capacity: Capacity, *, later: bool) -> int:
    """How many of `units` found places, which are now taken."""
    take = capacity.take_later if later else capacity.take_now
    taken = 0
    while taken < units and take(demand.shape, demand.pods_per_unit) is not None:
        taken += 1
    return taken


def _gives(donor: Job, demand: Demand, units: int) -> Reason:
    resource, n = (demand.shape.accelerators or (("accelerators", 0),))[0]
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
    demand: Demand, units: int, at_once: int, later: int, reclaimed: int, donors: dict[str, Job]
) -> Reason:
    """Where the demand stands after it was served, in pods."""
    size = demand.pods_per_unit
    lacking = (units - at_once - later - reclaimed) * size
    if lacking:
        resource, n = (demand.shape.accelerators or (("accelerators", 0),))[0]
        return because(
            ReasonCode.NO_CAPACITY,
            placed=units * size - lacking,
            pods=units * size,
            accelerators=lacking * n,
            resource=resource,
        )
    if reclaimed:
        return because(ReasonCode.RECLAIMS, pods=reclaimed * size, donors=", ".join(sorted(donors)))
    if later:
        return because(ReasonCode.WAITS_FOR_RELEASE, pods=later * size)
    return because(ReasonCode.FITS)


def _answer(
    job: Job, demand: Demand, fits: bool, reason: Reason, rejected: Iterable[Rejection]
) -> None:
    """What serving a job's own demand means for its size."""
    job.rejected.extend(rejected)
    if demand.kind is not DemandKind.START:
        job.reason = job.reason or because(
            ReasonCode.REPAIRING, running=job.running(), to=job.target
        )
        return
    if job.fixed is not None:
        return
    if not fits:
        waits = because(ReasonCode.WAITS_FOR_MINIMUM, min=job.minimum)
        job.reason = waits if reason.code is ReasonCode.NO_CAPACITY else reason
        return
    if job.workload.suspended:
        job.reason = because(ReasonCode.ADMITTED, to=job.minimum)
    else:
        job.reason = because(ReasonCode.GROWS_TO_MINIMUM, from_=job.target, to=job.minimum)
    job.target = job.minimum


# -- what comes of it ------------------------------------------------------------------------


def _result(
    snapshot: ClusterSnapshot,
    policies: PolicySet,
    now: float,
    jobs: list[Job],
    pending: list[PendingDemand],
    wake: float | None,
) -> Plan:
    commands = [command for job in jobs if (command := _command(job)) is not None]
    decisions = [_decision(job) for job in jobs]
    return Plan(
        digest=digest(snapshot, policies, now),
        now=now,
        decisions=tuple(sorted(decisions, key=lambda d: d.workload)),
        commands=tuple(commands),
        pending=tuple(pending),
        accounting=account(snapshot),
        next_wake=wake,
    )


def _decision(job: Job) -> Decision:
    reason = job.reason if job.reason is not None and _may_change(job) else job.fixed or job.reason
    return Decision(
        workload=job.workload.key,
        current=job.workload.granted,
        desired=job.target,
        reason=reason or because(ReasonCode.AT_MAXIMUM, to=job.target),
        rejected=tuple(job.rejected),
        growth_wanted_since=None if job.changed else job.growth_wanted_since,
        short_since=job.short_since,
    )


def _may_change(job: Job) -> bool:
    """Not fixed; or fixed by a growth under way that a reclaim has turned round."""
    if job.fixed is None:
        return True
    return job.in_flight is not None and job.target < job.in_flight.to_replicas


def _command(job: Job) -> Command | None:
    """The command that carries a job's decision, if it needs one."""
    workload = job.workload
    starts = (
        workload.suspended and job.reason is not None and (job.reason.code is ReasonCode.ADMITTED)
    )
    if not _may_change(job) or job.reason is None or not (job.changed or starts):
        return None
    if workload.suspended and not starts:
        return None
    gone = job.leaving(job.target) if job.target < workload.granted else ()
    return Command(
        kind=CommandKind.ADMIT if starts else CommandKind.RESIZE,
        workload=workload.key,
        from_replicas=workload.granted,
        to_replicas=job.target,
        victims=tuple(pod.name for pod in gone),
        precondition=workload.resource_version,
        reason=job.reason,
    )
