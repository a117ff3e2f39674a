"""Reclaim: elastic jobs of lower priority give back replicas above their minimum.

Whole valid steps only, from the lowest priority first, and only where what they free lets the
demand be placed: the victims of a step are known (the kind dictates them), so are their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.engine.decisions import Rejection
from controlplane.engine.jobs import Job
from controlplane.engine.ordering import Demand
from controlplane.engine.placement import Capacity
from controlplane.engine.reasons import ReasonCode, because


@dataclass(frozen=True, slots=True)
class Step:
    """One job gives back the replicas from `before` down to `after`."""

    job: Job
    before: int
    after: int


def reclaim_unit(
    demand: Demand, jobs: Iterable[Job], capacity: Capacity
) -> tuple[list[Step], list[Rejection]]:
    """The steps that make room, later, for one unit of a demand, which is then taken.

    One job alone is tried first, each in order; then all together, without each one that turns
    out not to be needed. No steps, and nothing changed, if even that isn't enough.
    """
    donors, rejected = candidates(demand, jobs)
    for job in donors:
        steps = _until_it_fits(demand, [job], capacity)
        if steps:
            return steps, rejected
        lowest = because(ReasonCode.FREES_NOTHING_USEFUL, to=job.minimum, demand=demand.name)
        rejected.append(Rejection(str(job.workload.key), lowest))
    if len(donors) < 2:
        return [], rejected
    needed = _needed(demand, donors, capacity)
    return _until_it_fits(demand, needed, capacity), rejected


def candidates(demand: Demand, jobs: Iterable[Job]) -> tuple[list[Job], list[Rejection]]:
    """Jobs that may give, those of the lowest priority first and, among equals, the one furthest
    above its minimum; and why each of the others may not."""
    donors, rejected = [], []
    for job in jobs:
        if job is demand.job or not job.workload.managed or not job.sizes:
            continue
        why = None
        if job.workload.priority >= demand.priority:
            why = because(
                ReasonCode.PRIORITY_NOT_LOWER,
                priority=job.workload.priority,
                demand_priority=demand.priority,
            )
        elif not may_give(job):
            why = because(ReasonCode.RESIZE_UNDER_WAY, to=job.target)
        elif job.lower_size() is None:
            why = because(ReasonCode.AT_MINIMUM, min=job.minimum)
        if why is None:
            donors.append(job)
        elif not (job.workload.finished or job.workload.suspended):
            rejected.append(Rejection(str(job.workload.key), why))
    return sorted(donors, key=_surplus), rejected


def may_give(job: Job) -> bool:
    """Free to change; or growing right now: a growth that was written gives way to a reclaim,
    which never waits for it."""
    if job.workload.suspended or job.workload.finished:
        return False
    if job.fixed is None:
        return True
    flight = job.in_flight
    return (
        flight is not None
        and flight.state == "applied"
        and flight.to_replicas > flight.from_replicas
        and job.workload.granted == flight.to_replicas
    )


def _surplus(job: Job) -> tuple[int, int, str]:
    return (job.workload.priority, job.minimum - job.target, str(job.workload.key))


def _until_it_fits(demand: Demand, donors: Sequence[Job], capacity: Capacity) -> list[Step]:
    """Steps from the donors, the best one each time, until a unit fits; else all undone."""
    mark, steps = capacity.mark(), list[Step]()
    while True:
        giving = sorted((job for job in donors if job.lower_size() is not None), key=_surplus)
        if not giving:
            break
        steps.append(_step_down(giving[0], capacity))
        if capacity.take_later(demand.shape, demand.pods_per_unit) is not None:
            return steps
    _undo(steps)
    capacity.rollback(mark)
    return []


def _needed(demand: Demand, donors: Sequence[Job], capacity: Capacity) -> list[Job]:
    """The donors without those that the others can do without; the last in order go first."""
    needed = list(donors)
    for job in reversed(donors):
        fewer = [donor for donor in needed if donor is not job]
        mark = capacity.mark()
        steps = _until_it_fits(demand, fewer, capacity)
        if steps:
            _undo(steps)
            capacity.rollback(mark)
            needed = fewer
    return needed


def _step_down(job: Job, capacity: Capacity) -> Step:
    """The job's target falls by one valid size; its leaving pods' places are free later."""
    before, after = job.target, job.lower_size()
    assert after is not None
    for pod in job.leaving(after):
        if (pod.replica_index or 0) < before:
            capacity.release(pod)
    job.target = after
    return Step(job, before, after)


def _undo(steps: Iterable[Step]) -> None:
    for step in reversed(list(steps)):
        step.job.target = step.before
