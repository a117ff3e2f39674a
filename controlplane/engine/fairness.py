"""Shares: how far a queue is above its own, and how units are divided by weight.

`weighted_share` is Kueue's dominant resource share (KEP-1714, Fair Sharing), after Ghodsi et al.,
Dominant Resource Fairness (NSDI 2011). `split` is weighted max-min in whole units (progressive
filling; Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

#: weights further apart count as so far apart: nobody's part vanishes in rounding
MOST_RATIO = 1e9
#: up to so many units a part are dealt out one by one, which is faster than to look for the level
FEW = 8


@dataclass(frozen=True, slots=True)
class Part:
    """One that shares. `floor`: units that are served before anybody gets more than theirs;
    `ceiling`: most that it can use, None for no limit."""

    weight: float = 1.0
    floor: int = 0
    ceiling: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Parts that share what their group gets: the jobs of a team, the teams of a queue. Its floor
    and ceiling are the sums of theirs, `ceiling` if that is less."""

    parts: Mapping[str, Part | Group]
    weight: float = 1.0
    ceiling: int | None = None


@dataclass(slots=True)
class _Filling:
    """A part while it is filled: units so far, and the most of this phase."""

    name: str
    weight: float
    units: int
    most: int
    first: int = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.units

    def level(self, units: int) -> float:
        """When the unit after `units` is due: the middle of its step, by weight."""
        return (units + 0.5) / self.weight

    def below(self, level: float) -> int:
        """Units that are due below a level."""
        units = math.ceil(min(level * self.weight - 0.5, self.most))
        units = min(max(units, self.first), self.most)
        # the same comparison as the one that deals out the rest, to the last bit
        while units > self.first and self.level(units - 1) >= level:
            units -= 1
        while units < self.most and self.level(units) < level:
            units += 1
        return units


def weighted_share(
    borrowed: Mapping[str, int], lendable: Mapping[str, int], weight: float
) -> tuple[float, str]:
    """(share, resource): what a queue uses beyond its nominal quota, over what its cohort can lend
    in all, in thousandths, by weight; of the resource where that is largest, the first by name
    among equals. (0.0, "") for a queue that borrows nothing. Kueue's `weightedShare`, unrounded.

    `borrowed`, `lendable`: resource -> accelerators. A higher share gives back first. Raises
    ValueError unless the weight is finite and above 0.
    """
    _check_weight("weight", weight)
    most, dominant = 0.0, ""
    for resource in sorted(borrowed):
        total = lendable.get(resource, 0)
        if borrowed[resource] > 0 and total > 0:
            ratio = borrowed[resource] * 1000.0 / total
            if ratio > most:
                most, dominant = ratio, resource
    return most / weight, dominant


def split(units: int, parts: Mapping[str, Part]) -> dict[str, int]:
    """Units for each part: weighted max-min, in whole numbers. Floors are served first (by weight,
    if there are too few units even for them), nobody gets more than its ceiling, and what is left
    over when all are full stays undivided.

    One more unit goes to whoever it lifts least far, measured at the middle of the step (the
    divisor method of Webster and Sainte-Lague), by name among equals. That rounds like largest
    remainders but, unlike those (Alabama paradox; Balinski and Young, Fair Representation, 1982),
    more units never lower anybody's part: a job doesn't shrink because a node came.

    Raises ValueError for negative units, a weight that isn't finite and above 0, a negative floor
    or a ceiling below the floor.
    """
    if units < 0:
        raise ValueError(f"units is {units}: give 0 or more")
    heaviest = max((part.weight for part in parts.values()), default=1.0)
    filling = []
    for name in sorted(parts):
        part = parts[name]
        _check_part(name, part)
        weight = max(part.weight / heaviest, 1 / MOST_RATIO)
        filling.append(_Filling(name, weight, 0, part.floor))
    left = _fill(units, filling)
    for one in filling:
        ceiling = parts[one.name].ceiling
        one.first, one.most = one.units, one.units + left
        if ceiling is not None:
            one.most = min(one.most, ceiling)
    _fill(left, filling)
    return {one.name: one.units for one in filling}


def split_groups(units: int, parts: Mapping[str, Part | Group]) -> dict[tuple[str, ...], int]:
    """Units for each part by its path, e.g. ("research", "vision", "Job/ml/llama"): among the
    groups first, then within each. Raises ValueError as `split` does."""
    flat = {name: _as_part(part) for name, part in parts.items()}
    found: dict[tuple[str, ...], int] = {}
    for name, share in split(units, flat).items():
        part = parts[name]
        if isinstance(part, Part):
            found[(name,)] = share
        else:
            for path, inner in split_groups(share, part.parts).items():
                found[(name, *path)] = inner
    return found


def _as_part(part: Part | Group) -> Part:
    if isinstance(part, Part):
        return part
    inner = [_as_part(one) for one in part.parts.values()]
    ceilings = [one.ceiling for one in inner if one.ceiling is not None]
    ceiling = sum(ceilings) if len(ceilings) == len(inner) else None
    if part.ceiling is not None:
        ceiling = part.ceiling if ceiling is None else min(ceiling, part.ceiling)
    floor = sum(one.floor for one in inner)
    return Part(part.weight, floor if ceiling is None else min(floor, ceiling), ceiling)


def _fill(units: int, parts: list[_Filling]) -> int:
    """Fill the parts, from what they have up to their `most`; the units left over."""
    room = sum(one.most - one.units for one in parts)
    if room <= units:
        for one in parts:
            one.units = one.most
        return units - room
    goal = units + sum(one.units for one in parts)
    if units > FEW * len(parts):
        level = _level(goal, parts)
        for one in parts:
            one.units = one.below(level)
    left = goal - sum(one.units for one in parts)
    queue = [(one.level(one.units), one.name, one) for one in parts if one.units < one.most]
    heapq.heapify(queue)
    for _ in range(left):
        _, _, one = queue[0]
        one.units += 1
        if one.units < one.most:
            heapq.heapreplace(queue, (one.level(one.units), one.name, one))
        else:
            heapq.heappop(queue)
    return 0


def _level(goal: int, parts: list[_Filling]) -> float:
    """A level up to which everything can be given out: by halving, so that a cluster's worth of
    units costs no more than a handful."""
    low, high = 0.0, max(one.level(one.most) for one in parts)
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        total = sum(one.below(middle) for one in parts)
        if total <= goal:
            low = middle
            if goal - total < len(parts):
                break
        else:
            high = middle
    return low


def _check_part(name: str, part: Part) -> None:
    _check_weight(f"weight of {name}", part.weight)
    if part.floor < 0:
        raise ValueError(f"floor of {name} is {part.floor}: give 0 or more")
    if part.ceiling is not None and part.ceiling < part.floor:
        raise ValueError(
            f"ceiling of {name} is {part.ceiling}: give at least its floor ({part.floor})"
        )


def _check_weight(field_name: str, weight: float) -> None:
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"{field_name} is {weight}: give a finite number above 0")
