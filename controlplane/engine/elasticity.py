"""Growth into what is left, and what holds it back.

`fair_share` in its simplest right form: jobs of the highest priority first; among equals the next
valid step goes, one at a time, to the job that is least above its minimum. A job grows only if the
whole of its growth is worth its pause. One that still waits for its time reserves nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from controlplane.engine.decisions import Rejection
from controlplane.engine.jobs import Job
from controlplane.engine.placement import Capacity
from controlplane.engine.reasons import Reason, ReasonCode, because

#: throughput grows with replicas^0.9 where nothing was measured (a concave default)
DEFAULT_EXPONENT = 0.9
#: a growth must pay for its pause within this time, or within the cooldown if that is longer
PAYBACK_S = 600.0
HOUR_S = 3600.0
#: a throughput outside of this, in samples/s, is no measurement
LEAST, MOST = 1e-9, 1e15


def grow(jobs: Iterable[Job], capacity: Capacity, now: float) -> float | None:
    """Give what is left to the jobs that may grow. Returns when the next one may, or None."""
    ready: list[Job] = []
    due: list[float] = []
    for job in jobs:
        if job.fixed is not None or job.changed or job.workload.suspended or not job.sizes:
            continue
        if job.target < job.minimum:  # waits for all of its minimum (ordering.starts)
            continue
        if not _has_room(job, capacity, now):
            continue
        held, until = held_back(job, now)
        if held is None:
            ready.append(job)
            continue
        job.reason = held
        if until is not None:
            due.append(until)
    _share_worthwhile(ready, capacity)
    return min(due, default=None)


def held_back(job: Job, now: float) -> tuple[Reason | None, float | None]:
    """Why a job that could grow doesn't yet, and when that ends by itself; (None, None): it may."""
    policy, history, size = job.policy, job.history, job.next_size()
    assert policy is not None
    assert size is not None
    assert job.growth_wanted_since is not None
    waited = now - job.growth_wanted_since
    if waited < policy.scaling_timeout:
        reason = because(
            ReasonCode.STABILIZING,
            next=size, waited_s=float(waited), timeout_s=policy.scaling_timeout,
        )  # fmt: skip
        return reason, job.growth_wanted_since + policy.scaling_timeout
    for code, last, timeout in (
        (ReasonCode.COOLING_DOWN, history.last_resize_at, policy.cooldown),
        (ReasonCode.SNOOZED, history.last_restart_at, policy.scale_up_snooze),
    ):
        if last is not None and now - last < timeout:
            return because(code, next=size, since_s=float(now - last), timeout_s=timeout), (
                last + timeout
            )
    recent = [at for at in history.resizes if now - at < HOUR_S]
    budget = policy.restart_budget
    if budget is not None and len(recent) >= budget:
        reason = because(ReasonCode.BUDGET_SPENT, next=size, resizes=len(recent), budget=budget)
        return reason, (recent[-budget] + HOUR_S if budget else None)
    return None, None


def expected_gain(job: Job, before: int, size: int) -> float:
    """Relative gain in samples from growing to `size`, its measured pause paid for: over the time
    until it may be resized again, and at least `PAYBACK_S`."""
    curve = job.report.throughput if job.report else {}
    pause = (job.report.resize_cost_s if job.report else None) or 0.0
    horizon = max(PAYBACK_S, job.policy.cooldown if job.policy else 0.0)
    useful = max(0.0, 1 - pause / horizon)
    return rate(curve, size) / rate(curve, before) * useful - 1


def rate(curve: Mapping[int, float], size: int) -> float:
    """Throughput at a size: as measured, else scaled from the nearest size that was."""
    known = {n: value for n, value in curve.items() if n > 0 and LEAST < value < MOST}
    if not known:
        return float(size**DEFAULT_EXPONENT)
    nearest = min(known, key=lambda n: (abs(n - size), n))
    return float(known[nearest] * (size / nearest) ** DEFAULT_EXPONENT)


def _has_room(job: Job, capacity: Capacity, now: float) -> bool:
    """Whether the next size could be placed; if not, the reason is noted. Also notes since when
    there has been room."""
    if job.short_since is not None:
        job.reason = because(ReasonCode.REPAIRING, running=job.running(), to=job.target)
        return False
    size = job.next_size()
    if size is None:
        job.reason = because(ReasonCode.AT_MAXIMUM, to=job.target)
        return False
    pods = (size - job.target) * job.pods_per_replica
    found = capacity.fitting(job.shape, pods)
    if found < pods:
        job.reason = _no_room(job, size, pods - found)
        return False
    since = job.history.growth_wanted_since
    job.growth_wanted_since = now if since is None else since
    return True


def _no_room(job: Job, size: int, missing: int) -> Reason:
    resource, n = (job.shape.accelerators or (("accelerators", 0),))[0]
    pods = (size - job.target) * job.pods_per_replica
    return because(
        ReasonCode.NO_ROOM,
        to=job.target, next=size, missing=missing, pods=pods, accelerators=n, resource=resource,
    )  # fmt: skip


def _share_worthwhile(ready: list[Job], capacity: Capacity) -> None:
    """Share what is left among the jobs whose whole growth brings more than it costs: where one's
    wouldn't, its places go to the others."""
    while ready:
        mark = capacity.mark()
        refused = _share(ready, capacity)
        poor = [job for job in ready if job.changed and not _worthwhile(job)]
        if not poor:
            for job, rejection in refused:
                job.rejected.append(rejection)
            return
        capacity.rollback(mark)
        for job in poor:
            job.reason = _gain_too_small(job, job.target)
        for job in ready:
            job.target = job.workload.granted
        ready = [job for job in ready if job not in poor]


def _worthwhile(job: Job) -> bool:
    gain = expected_gain(job, job.workload.granted, job.target)
    return gain >= (job.policy.min_gain if job.policy else 0.0)


def _gain_too_small(job: Job, size: int) -> Reason:
    return because(
        ReasonCode.GAIN_TOO_SMALL,
        next=size,
        gain_percent=expected_gain(job, job.workload.granted, size) * 100,
        min_gain_percent=(job.policy.min_gain if job.policy else 0.0) * 100,
    )


def _share(ready: Iterable[Job], capacity: Capacity) -> list[tuple[Job, Rejection]]:
    """One step at a time until nothing more fits, or brings anything; the steps that were
    refused."""
    refused: list[tuple[Job, Rejection]] = []
    queue = [(_place_in_line(job), i, job) for i, job in enumerate(ready)]
    heapq.heapify(queue)
    while queue:
        _, i, job = heapq.heappop(queue)
        size = job.next_size()
        if size is None:
            continue
        why = _take_step(job, size, capacity)
        if why is None:
            job.target = size
            job.reason = because(ReasonCode.GROWS, from_=job.workload.granted, to=size)
            heapq.heappush(queue, (_place_in_line(job), i, job))
            continue
        refused.append((job, Rejection(f"{size} replicas", why)))
        if not job.changed:
            job.reason = why
    return refused


def _take_step(job: Job, size: int, capacity: Capacity) -> Reason | None:
    """Takes the places of one step; why not, otherwise."""
    curve = job.report.throughput if job.report else {}
    if rate(curve, size) <= rate(curve, job.target):
        return _gain_too_small(job, size)
    pods = (size - job.target) * job.pods_per_replica
    if capacity.take_now(job.shape, pods) is not None:
        return None
    missing = pods - capacity.fitting(job.shape, pods)
    if job.changed:
        return because(ReasonCode.DOES_NOT_FIT, to=size, missing=missing)
    return _no_room(job, size, missing)


def _place_in_line(job: Job) -> tuple[int, int]:
    return (-job.workload.priority, job.target - job.minimum)
