"""One planning cycle: a snapshot, policies and the time in; decisions with reasons out. Pure.

The steps of DESIGN.md, Planning, in their order: each is a function that can be read alone.
"""

from __future__ import annotations

from controlplane.engine.accounting import account
from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.decisions import Decision, PendingDemand, Plan, Rejection
from controlplane.engine.elasticity import grow
from controlplane.engine.failures import note_shortage, shrink_after_fault
from controlplane.engine.jobs import Job, load_jobs
from controlplane.engine.lifecycle import release_leaving, to_valid_size
from controlplane.engine.ordering import demands
from controlplane.engine.placement import Capacity
from controlplane.engine.policy import PolicySet
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.serialize import canonical, digest
from controlplane.engine.serving import serve
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
    release_leaving(jobs, capacity)
    for job in jobs:
        note_shortage(job, now)
        to_valid_size(job, capacity)
    due = [shrink_after_fault(job, capacity, now) for job in jobs]
    pending = serve(demands(snapshot, jobs), jobs, capacity)
    due.append(grow(jobs, capacity, now))
    wake = min((at for at in due if at is not None), default=None)
    return _result(snapshot, policies, now, jobs, pending, wake)


def _unusable(snapshot: ClusterSnapshot, now: float) -> Reason | None:
    if not snapshot.complete:
        return because(ReasonCode.SNAPSHOT_INCOMPLETE)
    age = now - snapshot.taken_at
    if age > STALE_S:
        return because(ReasonCode.SNAPSHOT_STALE, age_s=float(age))
    return None


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
        # a shrink starts the clock of the next fault anew
        short_since=None if job.changed else job.short_since,
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
