"""Reclaim: elastic jobs of lower priority give back replicas above their minimum.

Whole valid steps only, from the lowest priorities first, and only where what they free lets the
demand be placed: the victims of a step are known (the kind dictates them), so are their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.engine.decisions import Rejection
from controlplane.engine.jobs import Job
from controlplane.engine.ordering import Demand
from controlplane.engine.placement import Capacity
from controlplane.engine.reasons import Reason, ReasonCode, because


@dataclass(frozen=True, slots=True)
class Step:
    """One job gives back the replicas from `before` down to `after`, both valid sizes."""

    job: Job
    before: int
    after: int

    def cost(self) -> int:
        """Accelerators that stop working."""
        victims = self.job.freed_by(self.before, self.after)
        return len(victims) * sum(n for _, n in self.job.shape.accelerators)


def reclaim_unit(
    demand: Demand, jobs: Iterable[Job], capacity: Capacity
) -> tuple[list[Step], list[Rejection]]:
    """The cheapest steps that make room, later, for one unit of a demand, which is then taken.

    Jobs up to one priority after the other are asked: first each one of that priority alone, then
    all so far together. No steps, and nothing changed, if all of them aren't enough.
    """
    donors, rejected = candidates(demand, jobs)
    if _fits(demand, [Step(job, job.target, job.minimum) for job in donors], capacity):
        for level in sorted({job.workload.priority for job in donors}):
            asked = [job for job in donors if job.workload.priority <= level]
            equals = [job for job in asked if job.workload.priority == level]
            steps = _alone(demand, equals, capacity) or _together(demand, asked, capacity)
            if steps:
                _carry_out(demand, steps, capacity)
                return steps, rejected
    for job in donors:
        useless = because(ReasonCode.FREES_NOTHING_USEFUL, to=job.minimum, demand=demand.name)
        rejected.append(Rejection(str(job.workload.key), useless))
    return [], rejected


def candidates(demand: Demand, jobs: Iterable[Job]) -> tuple[list[Job], list[Rejection]]:
    """Jobs that may give, those of the lowest priority first and, among equals, the one furthest
    above its minimum; and why each of the others may not."""
    donors, rejected = [], []
    for job in jobs:
        workload = job.workload
        if job is demand.job or not job.sizes or workload.finished or workload.suspended:
            continue
        why = _why_not(job, demand)
        if why is None:
            donors.append(job)
        else:
            rejected.append(Rejection(str(workload.key), why))
    return sorted(donors, key=_surplus), rejected


def _why_not(job: Job, demand: Demand) -> Reason | None:
    if job.workload.priority >= demand.priority:
        return because(
            ReasonCode.PRIORITY_NOT_LOWER,
            priority=job.workload.priority,
            demand_priority=demand.priority,
        )
    if not may_give(job):
        return because(ReasonCode.RESIZE_UNDER_WAY, to=job.target)
    if job.lower_size() is None:
        return because(ReasonCode.AT_MINIMUM, min=job.minimum)
    return None


def may_give(job: Job) -> bool:
    """Free to change; or growing right now: a growth that was written gives way to a reclaim,
    which never waits for it."""
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


def _fits(demand: Demand, steps: Iterable[Step], capacity: Capacity) -> bool:
    """Whether a unit could be placed once these steps are done; nothing is changed."""
    mark = capacity.mark()
    for step in steps:
        for pod in step.job.freed_by(step.before, step.after):
            capacity.release(pod)
    fits = capacity.take_later(demand.shape, demand.pods_per_unit) is not None
    capacity.rollback(mark)
    return fits


def _carry_out(demand: Demand, steps: Iterable[Step], capacity: Capacity) -> None:
    for step in steps:
        step.job.shrink_to(step.after, capacity)
    capacity.take_later(demand.shape, demand.pods_per_unit)


def _alone(demand: Demand, donors: Sequence[Job], capacity: Capacity) -> list[Step]:
    """The one job that makes room at the least cost, the first in order among equals."""
    needed = demand.pods_per_unit * sum(n for _, n in demand.shape.accelerators)
    best: Step | None = None
    for job in donors:
        step = _shallowest(demand, job, capacity)
        if step is not None and (best is None or step.cost() < best.cost()):
            best = step
            if best.cost() <= needed:  # nothing is given in vain: none can do better
                break
    return [best] if best is not None else []


def _shallowest(demand: Demand, job: Job, capacity: Capacity) -> Step | None:
    """The least that this job alone must give for a unit to fit."""
    if not _fits(demand, [Step(job, job.target, job.minimum)], capacity):
        return None
    after = job.lower_size()
    while after is not None:
        step = Step(job, job.target, after)
        if _fits(demand, [step], capacity):
            return step
        after = job.lower_size(after)
    return None


def _together(demand: Demand, donors: Sequence[Job], capacity: Capacity) -> list[Step]:
    """All the jobs, each giving only what the others can't do without: those of the highest
    priority are spared first. Among equals both orders are tried and the cheaper one is taken."""
    least_surplus_first = sorted(donors, key=lambda job: (-job.workload.priority, -_excess(job)))
    most_surplus_first = sorted(donors, key=lambda job: (-job.workload.priority, _excess(job)))
    found = [_spare(demand, order, capacity) for order in (least_surplus_first, most_surplus_first)]
    return min(found, key=lambda steps: sum(step.cost() for step in steps))


def _excess(job: Job) -> int:
    """Minus the replicas above the minimum, so that it sorts as `_surplus` does."""
    return job.minimum - job.target


def _spare(demand: Demand, order: Sequence[Job], capacity: Capacity) -> list[Step]:
    """From everybody at the minimum, each job in turn gets back as much as it can."""
    after = {job: job.minimum for job in order}

    def steps() -> list[Step]:
        return [Step(job, job.target, size) for job, size in after.items() if size < job.target]

    if not _fits(demand, steps(), capacity):
        return []
    for job in order:
        for size in (job.target, *(s for s in reversed(job.sizes) if s < job.target)):
            after[job] = size
            if _fits(demand, steps(), capacity):
                break
    return steps()
