"""Reclaim: the least disruption that makes room for a unit of demand.

Elastic jobs of lower priority give back whole valid steps, the lowest priorities first, and only
where what they free lets the demand be placed. Pod by pod the node is found where room costs least;
at the end every step that the unit can do without is given back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np

from controlplane.engine.jobs import Job
from controlplane.engine.nodetable import Mask
from controlplane.engine.ordering import Demand
from controlplane.engine.placement import Capacity
from controlplane.engine.topology import Within
from controlplane.engine.victims import Donors, Step

#: nodes that are weighed for one pod: the first that the donors in their order name
MOST_NODES = 24
#: topology domains that are weighed for a gang, those with the most room first
MOST_DOMAINS = 8

#: sizes that the search has given jobs so far
Sizes = dict[Job, int]


def reclaim_unit(demand: Demand, donors: Donors, capacity: Capacity) -> list[Step]:
    """The cheapest steps found that make room, later, for one unit of a demand, which is then
    taken. No steps, and nothing changed, if all donors together aren't enough."""
    steps, within = find_steps(demand, donors, capacity)
    if steps:
        carry_out(steps, donors, capacity)
        capacity.take_later(demand.shape, demand.pods_per_unit, within)
    return steps


def find_steps(
    demand: Demand, donors: Donors, capacity: Capacity
) -> tuple[list[Step], Within | None]:
    """The steps, and where the unit would lie; nothing is changed."""
    for level in donors.levels(demand):
        able = donors.below(demand, level)
        for within, where in _areas(demand, donors, level, capacity):
            steps = _search(demand, able, donors, capacity, where)
            if steps and donors.keeps_nominal(steps):
                return steps, within
    return [], None


def carry_out(steps: Iterable[Step], donors: Donors, capacity: Capacity) -> None:
    for step in steps:
        donors.gave(step, capacity)
        step.job.shrink_to(step.after, capacity)


def _areas(
    demand: Demand, donors: Donors, level: int, capacity: Capacity
) -> Iterator[tuple[Within | None, Mask]]:
    """Where the unit could lie if everybody up to a level gave all that he may: the domains that
    would hold it (the one with the least lacking first), then anywhere unless one is required."""
    surplus = donors.surplus(level, capacity)
    fits = np.full(len(capacity.table), np.iinfo(np.int64).max)
    for name, n in demand.shape.requests:
        free = capacity.later(name)
        if name in surplus:
            free = free + surplus[name]
        np.minimum(fits, free // n, out=fits)
    fits = np.where(capacity.open_to(demand.shape), np.maximum(fits, 0), 0)
    within = demand.within
    able = fits > 0
    if within is not None and (demand.pods_per_unit > 1 or within.domain or within.required):
        for inside, where in _domains(demand, within, fits, capacity):
            yield inside, where & able
        if within.required:
            return
    if int(fits.sum()) >= demand.pods_per_unit:
        loose = Within(within.level, required=False) if within else None
        yield loose, able


def _domains(
    demand: Demand, within: Within, fits: np.ndarray, capacity: Capacity
) -> Iterator[tuple[Within | None, Mask]]:
    numbers, names = capacity.table.domains(within.level)
    inside = numbers >= 0
    room = np.bincount(numbers[inside], weights=fits[inside], minlength=len(names))
    free = capacity.fits(demand.shape, later=True)
    there = np.bincount(numbers[inside], weights=free[inside], minlength=len(names))
    able = [i for i in np.argsort(-there, kind="stable") if room[i] >= demand.pods_per_unit]
    if within.domain is not None:
        able = [i for i in able if names[i] == within.domain]
    for i in able[:MOST_DOMAINS]:
        yield Within(within.level, required=True, domain=names[i]), numbers == i


def _search(
    demand: Demand, able: list[Job], donors: Donors, capacity: Capacity, where: Mask
) -> list[Step]:
    """Steps that make room for the whole unit within some nodes; nothing is changed."""
    mark = capacity.mark()
    sizes: Sizes = {}
    found = _make_room(demand, able, donors, capacity, where, sizes)
    capacity.rollback(mark)
    return _spare(demand, sizes, capacity, where) if found else []


def _make_room(
    demand: Demand,
    able: list[Job],
    donors: Donors,
    capacity: Capacity,
    where: Mask,
    sizes: Sizes,
) -> bool:
    """One pod after the other: a place that is free, else the one that costs least to free."""
    for _ in range(demand.pods_per_unit):
        if capacity.take_at(demand.shape, where) is not None:
            continue
        best = _cheapest(demand, able, donors, capacity, where, sizes)
        if best is None:
            return False
        for job, size in best.items():
            before = sizes.get(job, job.target)
            for pod in job.freed_by(before, size):
                capacity.release(pod)
            sizes[job] = size
        if capacity.take_at(demand.shape, where) is None:
            return False
    return True


def _cheapest(
    demand: Demand,
    able: list[Job],
    donors: Donors,
    capacity: Capacity,
    where: Mask,
    sizes: Sizes,
) -> Sizes | None:
    """Sizes for some jobs that free a place for one pod on one node, at the least cost. Jobs that
    give already are asked first: one pause instead of two."""
    allowed = {id(job) for job in able}
    lacking = sum(n for _, n in demand.shape.accelerators)
    best: tuple[int, Sizes] | None = None
    order = [*sizes, *(job for job in able if job not in sizes)]
    for node in _candidates(order, donors, sizes, capacity, where):
        option = _option(node, demand, allowed, donors, capacity, sizes)
        if option is not None and (best is None or option[0] < best[0]):
            best = option
            if best[0] <= lacking and len(best[1]) == 1:
                break  # nothing is given in vain: none can do better
    return best[1] if best is not None else None


def _candidates(
    order: Iterable[Job], donors: Donors, sizes: Sizes, capacity: Capacity, where: Mask
) -> Iterator[str]:
    seen: set[str] = set()
    found = 0
    for job in order:
        now = sizes.get(job, job.target)
        for pod in job.freed_by(now, donors.floor(job)):
            node = pod.node
            if node is None or node in seen or node not in capacity.table.position:
                continue
            seen.add(node)
            if where[capacity.table.position[node]]:
                found += 1
                yield node
            if found >= MOST_NODES:
                return


def _option(
    node: str,
    demand: Demand,
    allowed: set[int],
    donors: Donors,
    capacity: Capacity,
    sizes: Sizes,
) -> tuple[int, Sizes] | None:
    """The cost, and the sizes, that free one pod's place on a node; None if that can't be."""
    i = capacity.table.position[node]
    if not capacity.open_to(demand.shape)[i]:
        return None
    lacking = {n: amount - int(capacity.later(n)[i]) for n, amount in demand.shape.requests}
    lacking = {name: amount for name, amount in lacking.items() if amount > 0}
    ways: list[tuple[tuple[int, int, int], int, Job, int, dict[str, int]]] = []
    for job in dict.fromkeys(job for job, _ in donors.on(node) if id(job) in allowed):
        ways.extend(_ways(job, node, lacking, donors, sizes))
    ways.sort(key=lambda way: way[0])
    chosen: Sizes = {}
    for _, _, job, size, freed in ways:
        if all(freed.get(name, 0) >= amount for name, amount in lacking.items()):
            chosen = {job: size}
            break
    else:
        chosen = _combined(ways, lacking)
        if not chosen:
            return None
    cost = sum(Step(job, sizes.get(job, job.target), size).cost for job, size in chosen.items())
    return cost, chosen


def _ways(
    job: Job, node: str, lacking: dict[str, int], donors: Donors, sizes: Sizes
) -> Iterator[tuple[tuple[int, int, int], int, Job, int, dict[str, int]]]:
    """Sizes of one job that free something on a node: ((cost, priority, order), ...)."""
    now = sizes.get(job, job.target)
    size = donors.lower(job, now)
    before = 0
    while size is not None:
        step = Step(job, now, size)
        freed: dict[str, int] = {}
        for pod in step.freed:
            if pod.node == node:
                for name in lacking:
                    freed[name] = freed.get(name, 0) + pod.requests.get(name, 0)
        useful = sum(freed.values())
        if useful > before:
            before = useful
            yield (step.cost, job.workload.priority, now - size), useful, job, size, freed
            if all(freed.get(name, 0) >= amount for name, amount in lacking.items()):
                return
        size = donors.lower(job, size)


def _combined(
    ways: list[tuple[tuple[int, int, int], int, Job, int, dict[str, int]]],
    lacking: dict[str, int],
) -> Sizes:
    """Several jobs together, those of the lowest priority first, then the least cost for what is
    freed; empty if all of them aren't enough."""
    left = dict(lacking)
    given: dict[Job, dict[str, int]] = {}
    chosen: Sizes = {}
    for _, _, job, size, freed in sorted(
        ways, key=lambda way: (way[0][1], way[0][0] / max(1, way[1]))
    ):
        if all(amount <= 0 for amount in left.values()):
            break
        if job in chosen and size >= chosen[job]:
            continue
        had = given.get(job, {})
        for name in left:
            left[name] -= max(0, freed.get(name, 0) - had.get(name, 0))
        given[job], chosen[job] = freed, size
    return chosen if all(amount <= 0 for amount in left.values()) else {}


# -- giving back what isn't needed -----------------------------------------------------------


def _spare(demand: Demand, sizes: Sizes, capacity: Capacity, where: Mask) -> list[Step]:
    """Each job in turn gets back as much as the unit can do without: those of the highest priority
    first, then those that lose most."""
    order = sorted(
        sizes, key=lambda job: (-job.workload.priority, sizes[job] - job.target, job.name)
    )
    for job in order:
        larger = [*(s for s in job.sizes if sizes[job] < s < job.target), job.target]

        def lacks(size: int, job: Job = job) -> bool:
            return not _fits(demand, _steps({**sizes, job: size}), capacity, where)

        at = bisect_left(larger, True, key=lacks)  # what fits with less given fits with more
        if at:
            sizes[job] = larger[at - 1]
    return _steps(sizes)


def _steps(sizes: Sizes) -> list[Step]:
    return [Step(job, job.target, size) for job, size in sizes.items() if size < job.target]


def _fits(demand: Demand, steps: Iterable[Step], capacity: Capacity, where: Mask) -> bool:
    """Whether the unit could be placed once these steps are done; nothing is changed."""
    mark = capacity.mark()
    for step in steps:
        for pod in step.freed:
            capacity.release(pod)
    fits = int(capacity.fits(demand.shape, later=True)[where].sum()) >= demand.pods_per_unit
    capacity.rollback(mark)
    return fits
