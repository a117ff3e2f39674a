"""How the accelerators of a group of equals are shared, by objective.

Pure functions of their arguments; equal arguments give equal outcomes, and an outcome that is
planned again (with `held` set to it) is kept.

- `fair_share`: weighted max-min (water filling) over valid sizes; what is held only breaks ties.
- `completion_time`: the least mean time to completion. Accelerators go where they add the most
  `value`: a claim's speed-up over an equal share, times the number of claims whose remaining time
  is at least its own. That number is what a second of a claim's remaining work costs all of them
  under the orders that minimise the mean (shortest remaining time first; heSRPT, Berg et al.,
  SIGMETRICS 2020): all those at least as long wait for it. Speed-ups are concave, so accelerators
  that a short claim can't use well go on to the next ones.
- `throughput`: the largest sum of speed-ups over each claim's own minimum.

The last two first find an ideal without regard to what is held and then move towards it only by
steps that pay for the pauses they cause.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from controlplane.engine.types import Objective

# Found on the public workloads of Pollux (OSDI 2021), fixed batch sizes, at four loads; the mean
# completion time over the loads is flat around each (within 3 % from half to twice; but 7 % worse
# with UNKNOWN_POWER 1).
#: a resize has to bring so many times what its pause costs: gains are estimates, and others follow
RESIZE_MARGIN = 2.0
#: unknown remaining work is taken for the service attained so far plus this, in accelerator-seconds
#: (four accelerator-hours: about the whole service of a mean job there)...
UNKNOWN_SERVICE = 14_400.0
#: ...in levels of this ratio, so that claims don't take turns (queues of Tiresias, NSDI 2019)
UNKNOWN_LEVEL = 4.0
#: speed-ups of unknown work count to this power: nobody knows who ends first, so all get some
UNKNOWN_POWER = 0.7
#: sizes are tried one by one up to this many, then each this fraction larger than the one before
FINE_SIZES = 16
#: gains within this ratio are rounding
_NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class Claim:
    """One elastic job that takes part in sharing accelerators.

    `key`: stable tie-break. `sizes`: valid replica counts, rising; the first is its minimum.
    `held`: replicas now, 0 when suspended or not started. `per_replica`: accelerators a replica.
    `weight`: above 0. `rate`: useful samples/s at a replica count. `remaining`: samples still to
    do, None if unknown. `attained`: accelerator-seconds of service so far. `pause_s`: seconds
    without progress that a resize costs. `floor`: it may not be taken below so many replicas (0:
    it may be suspended). `frozen`: it keeps exactly what it holds.
    """

    key: str
    sizes: tuple[int, ...]
    held: int
    per_replica: int
    weight: float
    rate: Callable[[int], float]
    remaining: float | None
    attained: float
    pause_s: float
    floor: int = 0
    frozen: bool = False


def share(
    claims: Sequence[Claim], units: int, objective: Objective, *, horizon_s: float = 600.0
) -> dict[str, int]:
    """Replicas for each claim, by key: a valid size or 0, of at most `units` accelerators in all.

    Floors that don't fit in `units` are kept for the claims that hold something, in the order of
    their keys. `horizon_s`: seconds that an allocation is expected to last; within them (or within
    the claim's remaining time, if that is shorter) a resize has to pay for its pause.
    """
    ordered = sorted(claims, key=lambda claim: claim.key)
    sizes = {claim.key: claim.held for claim in ordered if claim.frozen}
    free = units - sum(claim.held * claim.per_replica for claim in ordered if claim.frozen)
    moving = [claim for claim in ordered if not claim.frozen]
    if objective is Objective.FAIR_SHARE:
        return sizes | _fair(moving, free)
    if objective is Objective.COMPLETION_TIME:
        ladders = _by_completion(ordered, units)
    else:
        ladders = [_ladder(c, c.sizes[0], c.weight) for c in moving]
    ideal = _ideal(ladders, free)
    found = _settle(ladders, ideal, free, horizon_s)
    return sizes | {step.key: step.sizes[at] for step, at in zip(ladders, found, strict=True)}


def _fair(claims: Sequence[Claim], units: int) -> dict[str, int]:
    """Weighted max-min: minimums first (floors before the rest), then whoever would have the
    least accelerators for its weight after its next step takes it, until such a step doesn't fit.

    The order of the steps doesn't depend on `units`, and nobody overtakes the step that doesn't
    fit; so more units never take anything from a claim, unless they start one that had nothing.
    """
    sizes, left = _minimums(claims, units)
    queue: list[FairStep] = []
    for claim in claims:
        if sizes[claim.key]:
            _push_fair(queue, claim, bisect_right(claim.sizes, sizes[claim.key]))
    while queue:
        _, _, key, at, claim = heapq.heappop(queue)
        needs = (claim.sizes[at] - sizes[key]) * claim.per_replica
        if needs > left:
            break
        left -= needs
        sizes[key] = claim.sizes[at]
        _push_fair(queue, claim, at + 1)
    return sizes


#: level and what it needs, whether it would be new to the claim (of two that are equal in both,
#: whoever has it keeps it), key
FairStep = tuple[tuple[float, int], bool, str, int, Claim]


def _push_fair(queue: list[FairStep], claim: Claim, at: int) -> None:
    if at < len(claim.sizes):
        size = claim.sizes[at]
        level = size * claim.per_replica / claim.weight
        needs = (size - claim.sizes[at - 1]) * claim.per_replica
        heapq.heappush(queue, ((level, needs), size > claim.held, claim.key, at, claim))


def _minimums(claims: Sequence[Claim], units: int) -> tuple[dict[str, int], int]:
    """(the least each may have, units left): floors, then minimums of those that hold something,
    then of the others by what it takes for their weight. Who doesn't fit gets nothing."""
    sizes, left = {claim.key: 0 for claim in claims}, units

    def turn(claim: Claim) -> tuple[bool, bool, float, str]:
        level = claim.sizes[0] * claim.per_replica / claim.weight
        return not claim.floor, not claim.held, 0.0 if claim.held else level, claim.key

    for claim in sorted(claims, key=turn):
        wanted = _valid_floor(claim) or claim.sizes[0]
        if wanted * claim.per_replica <= left:
            sizes[claim.key] = wanted
            left -= wanted * claim.per_replica
    return sizes, left


def _valid_floor(claim: Claim) -> int:
    """The smallest valid size that respects the floor; 0 without one."""
    if claim.floor <= 0:
        return 0
    return next((size for size in claim.sizes if size >= claim.floor), claim.sizes[-1])


@dataclass(slots=True)
class _Ladder:
    """The sizes of one claim, from 0, and what each is worth. `least`, `held`: positions in
    `sizes`. `work`: value times seconds until completion (infinite when unknown)."""

    key: str
    per: int
    sizes: list[int]
    values: list[float]
    least: int
    held: int
    pause_s: float
    work: float

    def units(self, before: int, after: int) -> int:
        """Accelerators between two positions."""
        return (self.sizes[after] - self.sizes[before]) * self.per

    def rise(self, before: int, after: int) -> float:
        """Value a second that a change brings once its pause is over."""
        return self.values[after] - self.values[before]

    def gain(self, before: int, after: int, horizon_s: float) -> float:
        """The same, less its pause spread over the time that it will last.
        Starting costs nothing extra: whoever starts pauses sooner or later."""
        if before == 0:
            return self.rise(before, after)
        value = self.values[after]
        lasts = min(horizon_s, self.work / value) if value > 0 else horizon_s
        lost = min(1.0, self.pause_s / lasts) if lasts > 0 else 1.0
        return self.rise(before, after) - RESIZE_MARGIN * lost * (value or self.values[before])


def _ladder(claim: Claim, reference: int, worth: float, power: float = 1.0) -> _Ladder:
    """Values: `worth` times the speed-up over `reference` replicas, to a power."""
    floor = _valid_floor(claim)
    sizes = [0, *_thinned(claim, floor)]
    base = claim.rate(reference)
    speeds = [claim.rate(size) / base if base > 0 else 0.0 for size in sizes[1:]]
    return _Ladder(
        key=claim.key,
        per=claim.per_replica,
        sizes=sizes,
        values=[0.0, *(worth * speed**power / power for speed in speeds)],
        least=sizes.index(floor),
        held=bisect_right(sizes, claim.held) - 1,
        pause_s=claim.pause_s,
        work=_left(claim, reference) * worth,
    )


def _thinned(claim: Claim, floor: int) -> list[int]:
    """The valid sizes, but of many large ones only those that differ by a few per cent; the floor,
    what is held and the largest stay."""
    if len(claim.sizes) <= FINE_SIZES:
        return list(claim.sizes)
    kept = list(claim.sizes[:FINE_SIZES])
    for size in claim.sizes[FINE_SIZES:]:
        if size >= kept[-1] * (1 + 1 / FINE_SIZES) or size in (floor, claim.held):
            kept.append(size)
    if kept[-1] != claim.sizes[-1]:
        kept.append(claim.sizes[-1])
    return kept


def _by_completion(claims: Sequence[Claim], units: int) -> list[_Ladder]:
    """Values for the least mean time to completion; `claims` are all of them, frozen ones too."""
    if not claims:
        return []
    equal = units / len(claims)
    pairs = [(claim, _nearest(claim, equal)) for claim in claims]
    seconds = np.array([_guess(c, equal) if c.remaining is None else _left(c, n) for c, n in pairs])
    ranked = np.sort(seconds)
    below = np.searchsorted(ranked, seconds, side="left")
    upto = np.searchsorted(ranked, seconds, side="right")
    # at least as long: all the longer ones and half of those that are equal, itself included
    waiting = len(claims) - (below + upto - 1) / 2
    return [
        _ladder(c, n, c.weight * many, UNKNOWN_POWER if c.remaining is None else 1.0)
        for (c, n), many in zip(pairs, waiting.tolist(), strict=True)
        if not c.frozen
    ]


def _nearest(claim: Claim, equal: float) -> int:
    """The valid size next to an equal share of the accelerators, from below."""
    wanted = round(equal / claim.per_replica)
    return claim.sizes[max(0, bisect_right(claim.sizes, wanted) - 1)]


def _left(claim: Claim, reference: int) -> float:
    """Seconds until completion at `reference` replicas; infinite if unknown."""
    rate = claim.rate(reference)
    if claim.remaining is None or rate <= 0:
        return math.inf
    return max(0.0, claim.remaining) / rate


def _guess(claim: Claim, equal: float) -> float:
    """Seconds that unknown work is taken for, with an equal share."""
    level = math.log(1 + max(0.0, claim.attained) / UNKNOWN_SERVICE, UNKNOWN_LEVEL)
    return UNKNOWN_SERVICE * UNKNOWN_LEVEL ** math.floor(level + _NOISE) / max(equal, 1.0)


def _ideal(ladders: Sequence[_Ladder], units: int) -> list[int]:
    """Positions that bring the most value in sum, by steepest ascent along each claim's concave
    hull (optimal but for what the last step can't fill); regardless of what is held."""
    places, left = _floors(ladders, units)
    hulls = [_hull(ladder, at) for ladder, at in zip(ladders, places, strict=True)]
    queue: list[tuple[float, int, int, int]] = []

    def push(i: int, step: int) -> None:
        hull, ladder = hulls[i], ladders[i]
        if step < len(hull):
            before, after = hull[step - 1], hull[step]
            slope = ladder.rise(before, after) / ladder.units(before, after)
            # equal slopes: the smaller one first, then by key (ladders are in their order)
            heapq.heappush(queue, (-slope, ladder.sizes[before] * ladder.per, i, step))

    for i in range(len(ladders)):
        push(i, 1)
    while queue and left > 0:
        _, _, i, step = heapq.heappop(queue)
        ladder, before = ladders[i], places[i]
        after = hulls[i][step]
        if ladder.units(before, after) <= left:
            push(i, step + 1)
        else:
            after = _fitting(ladder, before, after, left, ladder.rise)
        left -= ladder.units(before, after)
        places[i] = after
    return places


def _floors(ladders: Sequence[_Ladder], units: int) -> tuple[list[int], int]:
    """(positions of the floors, units left); who doesn't fit gets nothing."""
    places, left = [0] * len(ladders), units
    for i in sorted(range(len(ladders)), key=lambda i: not ladders[i].held):
        needs = ladders[i].units(0, ladders[i].least)
        if needs <= left:
            places[i] = ladders[i].least
            left -= needs
    return places, left


def _hull(ladder: _Ladder, start: int) -> list[int]:
    """Positions from `start` on whose values rise concavely: slopes between them only fall."""
    sizes, values, hull = ladder.sizes, ladder.values, [start]
    for at in range(start + 1, len(sizes)):
        value, size = values[at], sizes[at]
        if value <= values[hull[-1]] * (1 + _NOISE):
            continue
        while len(hull) > 1:
            last, before = hull[-1], hull[-2]
            rise = (value - values[last]) * (sizes[last] - sizes[before])
            if rise < (values[last] - values[before]) * (size - sizes[last]):
                break
            hull.pop()
        hull.append(at)
    return hull


def _fitting(
    ladder: _Ladder, before: int, after: int, left: int, brings: Callable[[int, int], float]
) -> int:
    """The position up to `after` that brings most and needs at most `left` accelerators."""
    best, most = before, 0.0
    for at in range(before + 1, after + 1):
        if ladder.units(before, at) > left:
            break
        value = brings(before, at)
        if value > most * (1 + _NOISE):
            best, most = at, value
    return best


def _settle(
    ladders: Sequence[_Ladder], ideal: Sequence[int], units: int, horizon_s: float
) -> list[int]:
    """Positions reached from those held by changes that pay. Repeated until nothing pays any more:
    each accepted change raises the value in sum, so this ends, and the outcome is kept when it is
    planned again."""
    places = [ladder.held for ladder in ladders]
    steps = list(zip(ladders, ideal, strict=True))
    left = units - sum(ladder.units(0, at) for ladder, at in zip(ladders, places, strict=True))
    for i, (ladder, to) in enumerate(steps):
        if to > places[i] and places[i] < ladder.least:
            left -= ladder.units(places[i], to)
            places[i] = to
    for _, i in _donors(steps, places, horizon_s):
        if left >= 0:
            break
        left += steps[i][0].units(ideal[i], places[i])
        places[i] = ideal[i]
    while True:
        before = list(places)
        left = _improve(steps, places, left, horizon_s)
        if places == before:
            return places


def _donors(
    steps: Sequence[tuple[_Ladder, int]], places: Sequence[int], horizon_s: float
) -> list[tuple[float, int]]:
    """(value lost for each accelerator, which) of those that hold more than their ideal; the
    cheapest first."""
    return sorted(
        (-ladder.gain(places[i], to, horizon_s) / ladder.units(to, places[i]), i)
        for i, (ladder, to) in enumerate(steps)
        if to < places[i]
    )


def _improve(
    steps: Sequence[tuple[_Ladder, int]], places: list[int], left: int, horizon_s: float
) -> int:
    """One round: whoever gains most for each accelerator grows to its ideal, from what is free and
    what the cheapest donors give, if the gain exceeds what they lose; else as far as what is free
    goes. The accelerators left."""
    donors = _donors(steps, places, horizon_s)
    growers = []
    for i, (ladder, to) in enumerate(steps):
        if to > places[i]:
            gain = ladder.gain(places[i], to, horizon_s)
            if gain > 0:
                growers.append((-gain / ladder.units(places[i], to), i))
    used = 0
    for density, i in sorted(growers):
        ladder, to = steps[i]
        needs = ladder.units(places[i], to)
        found, loss, taken = left, 0.0, used
        while found < needs and taken < len(donors):
            each, donor = donors[taken]
            gives = steps[donor][0].units(steps[donor][1], places[donor])
            found, loss, taken = found + gives, loss + each * gives, taken + 1
        if found >= needs and -density * needs > loss + _NOISE * abs(loss):
            for _, donor in donors[used:taken]:
                places[donor] = steps[donor][1]
            left, used, places[i] = found - needs, taken, to
        elif left > 0:
            at = _fitting(ladder, places[i], to, left, partial(ladder.gain, horizon_s=horizon_s))
            left -= ladder.units(places[i], at)
            places[i] = at
    return left
