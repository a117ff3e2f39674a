"""Replicas that are gone: first wait for their places, then go on with what is left."""

from __future__ import annotations

from controlplane.engine.jobs import Job
from controlplane.engine.placement import Capacity
from controlplane.engine.reasons import ReasonCode, because


def note_shortage(job: Job, now: float) -> None:
    """Since when the job has run fewer replicas than it was granted; None when it doesn't, or
    while a resize is under way (its pods are still coming)."""
    workload = job.workload
    if workload.suspended or workload.finished or job.in_flight is not None:
        return
    if job.running() < workload.granted:
        since = job.history.short_since
        job.short_since = now if since is None else since


def shrink_after_fault(job: Job, capacity: Capacity, now: float) -> float | None:
    """Once a job has been short for `fault_scale_down_timeout` it shrinks to the largest valid
    size that still runs. Returns when that will be, or None."""
    if job.fixed is not None or job.policy is None or job.short_since is None:
        return None
    due = job.short_since + job.policy.fault_scale_down_timeout
    running = job.running()
    fits = [size for size in job.sizes if size <= running]
    if not fits or fits[-1] >= job.target:
        return None
    if now < due:
        return due
    job.reason = because(
        ReasonCode.SHRINKS_AFTER_FAULT,
        from_=job.target,
        to=fits[-1],
        running=running,
        short_s=float(now - job.short_since),
        timeout_s=job.policy.fault_scale_down_timeout,
    )
    for pod in job.leaving(fits[-1]):
        capacity.release(pod)
    job.target = fits[-1]
    return None
