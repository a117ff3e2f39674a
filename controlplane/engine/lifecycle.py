"""From suspended to running, and sizes that have to be put right before anything else.

A job runs with at least its minimum or not at all (a gang). It starts at the least it can, and
grows from there.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine.jobs import Job
from controlplane.engine.ordering import Demand, DemandKind
from controlplane.engine.placement import Capacity
from controlplane.engine.reasons import Reason, ReasonCode, because

#: a start that would find room, and still doesn't get it
HELD_BACK = (ReasonCode.WAITS_FOR_QUOTA, ReasonCode.BIND_BACK_OFF)


def release_leaving(jobs: Iterable[Job], capacity: Capacity) -> None:
    """Replicas beyond what is granted leave, though nothing shows it yet."""
    for job in jobs:
        size = 0 if job.workload.suspended else min(job.target, job.workload.granted)
        for pod in job.leaving(size):
            capacity.release(pod)


def to_valid_size(job: Job, capacity: Capacity) -> None:
    """A size that the policy doesn't know (somebody scaled by hand, or the policy changed) falls
    to the next lower valid one. One below the minimum is `ordering.starts`."""
    if job.fixed is not None or job.workload.suspended or job.policy is None:
        return
    lower = job.lower_size()
    if job.target in job.sizes or lower is None:
        return
    if job.window is not None and job.target > job.sizes[-1]:
        job.reason = because(
            ReasonCode.SHRINKS_TO_SCHEDULE,
            from_=job.target, to=lower, window=job.window, max=job.policy.max_replicas,
        )  # fmt: skip
    else:
        job.reason = because(
            ReasonCode.SHRINKS_TO_POLICY, from_=job.target, to=lower, policy=job.policy.name
        )
    job.shrink_to(lower, capacity)


def answer(job: Job, demand: Demand, *, at_once: bool, reason: Reason) -> None:
    """What serving a job's own demand means for its size. `at_once`: every place is free now."""
    if demand.kind is not DemandKind.START:
        job.reason = job.reason or because(
            ReasonCode.REPAIRING, running=job.running(), to=job.target
        )
        return
    if job.fixed is not None:
        return
    if not at_once or reason.code in HELD_BACK:
        waits = because(ReasonCode.WAITS_FOR_MINIMUM, min=job.minimum)
        job.reason = waits if reason.code is ReasonCode.NO_CAPACITY else reason
        return
    if job.workload.suspended:
        job.reason = because(ReasonCode.ADMITTED, to=job.minimum)
    else:
        job.reason = because(ReasonCode.GROWS_TO_MINIMUM, from_=job.target, to=job.minimum)
    job.target = job.minimum
