"""Replicas that are gone: first wait for their places, then go on with what is left."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.engine.jobs import Job
from controlplane.engine.placement import Capacity
from controlplane.engine.reasons import Reason, ReasonCode, because


def note_shortage(job: Job, now: float) -> None:
    """Since when the job has run fewer replicas than it was granted; None when it doesn't, or
    while a resize is under way (its pods are still coming). Replicas that have finished their
    work aren't missed."""
    workload = job.workload
    if job.policy is None or workload.suspended or job.in_flight is not None:
        return
    if job.running() + job.completed() < workload.granted:
        since = job.history.short_since
        job.short_since = now if since is None else since


def shrink_after_fault(job: Job, capacity: Capacity, now: float) -> float | None:
    """Once a job has been short for `fault_scale_down_timeout` it shrinks to the largest valid
    size that it still holds. Returns when that will be, or None."""
    if job.fixed is not None or job.policy is None or job.short_since is None:
        return None
    due = job.short_since + job.policy.fault_scale_down_timeout
    held = largest_held(job)
    if held is None or held >= job.target:
        return None
    if now < due:
        return due
    job.reason = because(
        ReasonCode.SHRINKS_AFTER_FAULT,
        from_=job.target,
        to=held,
        running=job.running(),
        short_s=float(now - job.short_since),
        timeout_s=job.policy.fault_scale_down_timeout,
    )
    job.shrink_to(held, capacity)
    return None


def largest_held(job: Job) -> int | None:
    """The largest valid size up to the number of replicas that the job still holds; None when
    falling to it would not help.

    The highest indexes leave (KEP-3715). A lost replica with a lower one comes back on a place
    that they free, if it has none; one that is stuck on its place (a bad node, a crash) stays
    stuck, and the shrink would only cost a healthy replica.
    """
    held = job.running() + job.completed()
    size = max((size for size in job.sizes if size <= held), default=None)
    if size is None or any(index < size for index in job.replicas.stuck):
        return None
    return size


def shrink_before_departure(job: Job, closed: Mapping[str, Reason], capacity: Capacity) -> None:
    """Replicas on nodes that are about to leave go before the node does, where the job can give
    them up: a resize at a step boundary instead of a fault. They must be the last ones, since
    those are what a shrink takes."""
    if job.fixed is not None or job.policy is None or job.workload.suspended or job.changed:
        return
    size, nodes = job.target, set()
    while size > job.minimum and (there := _departing(job, size - 1, closed)):
        nodes |= there
        size -= 1
    kept = min((s for s in job.sizes if s >= size), default=job.target)
    if not nodes or kept >= job.target:
        return
    job.reason = because(
        ReasonCode.SHRINKS_BEFORE_DEPARTURE,
        from_=job.target,
        to=kept,
        nodes=", ".join(sorted(nodes)),
    )
    job.shrink_to(kept, capacity)


def _departing(job: Job, index: int, closed: Mapping[str, Reason]) -> set[str]:
    """Nodes that are about to leave and hold pods of a replica."""
    nodes = {pod.node for pod in job.replicas.standing.get(index, ()) if pod.node is not None}
    return {
        node for node in nodes if node in closed and closed[node].code is ReasonCode.NODE_DEPARTS
    }
