"""A queue calls back what is its own: jobs of the queues that borrow it shrink, as far as they are
above their minimum (Kueue's reclaimWithinCohort).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controlplane.engine.jobs import Job
from controlplane.engine.ordering import Demand
from controlplane.engine.placement import Capacity
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.reasons import ReasonCode, because
from controlplane.engine.victims import Step, least_in_a_cycle, may_give


def reclaim_quota(
    demand: Demand,
    needs: Mapping[str, int],
    jobs: Sequence[Job],
    quota: QuotaLedger,
    capacity: Capacity,
    ratio: float,
) -> list[Step]:
    """Steps of borrowers until the demand's queue may use `needs` (resource -> accelerators) of its
    own nominal quota; they are carried out. None, and nothing changed, where that can't be had
    (within `ratio` of each job's replicas), or where the demand would find no places all the
    same."""
    steps: list[Step] = []
    mark = quota.mark()
    found = all(
        _call_back(demand.queue, resource, n, jobs, quota, steps)
        for resource, n in needs.items()
        if (quota.nominal_left(demand.queue, resource) or 0) >= n
    )
    quota.rollback(mark)
    if not found or not _would_fit(demand, steps, capacity):
        return []
    if any(step.after < least_in_a_cycle(step.job, ratio, step.job.minimum) for step in steps):
        return []
    for step in steps:
        _carry_out(step, demand, quota, capacity)
    return steps


def _would_fit(demand: Demand, steps: Iterable[Step], capacity: Capacity) -> bool:
    mark = capacity.mark()
    for step in steps:
        for pod in step.freed:
            capacity.release(pod)
    fits = capacity.take_later(demand.shape, demand.pods_per_unit, demand.within) is not None
    capacity.rollback(mark)
    return fits


def _call_back(
    queue: str, resource: str, n: int, jobs: Sequence[Job], quota: QuotaLedger, steps: list[Step]
) -> bool:
    """Whether `n` can be had; what that takes is added to `steps`."""
    sizes = {step.job: step.after for step in steps}
    while (quota.available(queue, resource) or 0) < n:
        step = _next_step(quota.borrowers(queue, resource), resource, jobs, sizes)
        if step is None:
            return False
        steps[:] = [s for s in steps if s.job is not step.job]
        steps.append(Step(step.job, step.job.target, step.after))
        sizes[step.job] = step.after
        quota.give(step.job.workload.queue, step.job.amounts(step.before - step.after))
    return True


def _next_step(
    borrowers: Iterable[tuple[str, int]],
    resource: str,
    jobs: Sequence[Job],
    sizes: Mapping[Job, int],
) -> Step | None:
    """One valid step of the newest job of the lowest priority (kueue 840: the old ones are within
    their queue's own quota) that doesn't go into its queue's own."""
    for queue, borrowed in borrowers:
        mine = [j for j in jobs if j.workload.queue == queue and j.accelerators[0] == resource]
        for job in sorted(mine, key=_newest):
            before = sizes.get(job, job.target)
            after = job.lower_size(before)
            if after is None or not may_give(job) or job.workload.suspended:
                continue
            if (before - after) * job.accelerators[1] <= borrowed:
                return Step(job, before, after)
    return None


def _newest(job: Job) -> tuple[int, float, str]:
    grown = job.history.last_resize_at
    return (job.workload.priority, -(job.workload.created_at if grown is None else grown), job.name)


def _carry_out(step: Step, demand: Demand, quota: QuotaLedger, capacity: Capacity) -> None:
    job = step.job
    resource = job.accelerators[0]
    borrowed = quota.borrowed(job.workload.queue, resource)
    job.shrink_to(step.after, capacity)
    quota.give(job.workload.queue, job.amounts(step.before - step.after))
    job.reason = because(
        ReasonCode.SHRINKS_TO_QUOTA,
        from_=job.workload.granted,
        to=step.after,
        owner=demand.queue,
        queue=job.workload.queue,
        resource=resource,
        borrowed=borrowed,
    )
