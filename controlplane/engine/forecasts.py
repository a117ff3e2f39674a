"""Accelerators that growth leaves free: spares, and a reserve for inflow of higher priority that is
fixed or read off the recorded weeks, by the hour of the week.

Unknown is never 0: an hour that was never recorded takes the largest of what is known nearest to
it, and a resource that was never recorded has no forecast at all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from controlplane.engine.cluster_policy import ClusterPolicy

HOUR_S = 3600
HOURS = 168
#: hours from 1970-01-01, a Thursday, back to the Monday before it
MONDAY = 3 * 24
#: two samples further apart than this leave unknown what happened between them
GAP_S = 900.0


def kept_free(
    policy: ClusterPolicy,
    inflow: Mapping[str, tuple[float, ...]],
    resource: str,
    now: float,
) -> tuple[int, str]:
    """(accelerators of a resource that growth must leave free at `now`, what for in words):
    spares, and the larger of the fixed reserve and the forecast. (0, "") where nothing is kept."""
    spares = max(0, policy.spares.get(resource, 0))
    fixed = max(0, policy.reserves.get(resource, 0))
    expected = 0
    quantile, hours = policy.forecast_quantile, inflow.get(resource, ())
    if quantile is not None and len(hours) == HOURS:
        expected = math.ceil(forecast(hours, now, policy.forecast_horizon_s))
    parts = [f"{spares} as spares"] if spares else []
    if expected > fixed:
        minutes = round(policy.forecast_horizon_s / 60)
        parts.append(
            f"{expected} for demand of higher priority that the recorded weeks forecast within "
            f"{minutes} min, quantile {quantile:g}"
        )
    elif fixed:
        parts.append(f"{fixed} reserved for demand of higher priority")
    return spares + max(fixed, expected), ", ".join(parts)


def forecast(hours: Sequence[float], now: float, horizon_s: float) -> float:
    """Accelerators that come within `horizon_s` of `now`, from the inflow of each of the 168 hours
    of the week (UTC, Monday 0:00 first).

    The hour that has begun counts with the part of it that is left, since the rest has come; one
    that the horizon reaches only in part counts whole, since most inflow comes on the hour (people,
    cron). A horizon beyond a week counts as a week.
    """
    ends = now + min(max(0.0, horizon_s), HOURS * HOUR_S)
    hour = int(now // HOUR_S)
    left = min(ends, (hour + 1) * HOUR_S) - now
    total = hours[hour_of_week(now)] * left / HOUR_S
    for later in range(hour + 1, math.ceil(ends / HOUR_S)):
        total += hours[(later + MONDAY) % HOURS]
    return total


def hour_of_week(at: float) -> int:
    """0..167 in UTC, 0 the hour from Monday 0:00."""
    return (int(at // HOUR_S) + MONDAY) % HOURS


def inflow_by_hour(levels: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """(start of the hour, inflow within it) from (unix seconds, accelerators that demand of higher
    priority held), rising in time.

    Inflow is how far the level rises within the hour above where it stood at its beginning: what
    has to be free then. Hours of which a part longer than `GAP_S` wasn't recorded are left out.
    """
    found: list[tuple[float, float]] = []
    ordered = sorted(levels)
    for hour, span in _by_hour(ordered):
        times = [at for at, _ in span]
        edges = [hour, *(at for at in times if at > hour), hour + HOUR_S]
        widest = max(b - a for a, b in pairwise(edges))
        if times[0] > hour + GAP_S or widest > GAP_S:
            continue
        base = span[0][1]
        found.append((hour, max(0.0, max(value for _, value in span) - base)))
    return found


def quantiles_by_hour(samples: Sequence[tuple[float, float]], q: float) -> tuple[float, ...]:
    """For each of the 168 hours of the week (UTC, Monday 0:00 first) the quantile `q` (above 0, at
    most 1) of the samples (unix seconds, value) that lie in it: the least value that a part `q` of
    them doesn't exceed (nearest rank, which never lies below it).

    An hour without samples takes the largest quantile of the same hour of other days, or, where
    there are none, that of the nearest hour of the week before it or after it. Without any sample
    the result is empty: nothing is known. Values that aren't finite or are below 0 don't count.
    """
    by_hour: dict[int, list[float]] = defaultdict(list)
    for at, value in samples:
        if math.isfinite(value) and value >= 0:
            by_hour[hour_of_week(at)].append(value)
    known = {
        hour: sorted(values)[min(len(values), max(1, math.ceil(q * len(values) - 1e-9))) - 1]
        for hour, values in by_hour.items()
    }
    if not known:
        return ()
    return tuple(known[h] if h in known else _neighbours(known, h) for h in range(HOURS))


def _neighbours(known: Mapping[int, float], hour: int) -> float:
    same = [known[other] for other in range(hour % 24, HOURS, 24) if other in known]
    if same:
        return max(same)
    distance = min(min((h - hour) % HOURS, (hour - h) % HOURS) for h in known)
    near = ((hour - distance) % HOURS, (hour + distance) % HOURS)
    return max(known[h] for h in near if h in known)


def _by_hour(
    ordered: Sequence[tuple[float, float]],
) -> Iterable[tuple[float, list[tuple[float, float]]]]:
    """The samples of each hour, the last one before it first if it lies within `GAP_S`."""
    spans: dict[float, list[tuple[float, float]]] = {}
    before: tuple[float, float] | None = None
    for sample in ordered:
        hour = sample[0] // HOUR_S * HOUR_S
        if hour not in spans:
            carried = before is not None and hour - before[0] <= GAP_S
            spans[hour] = [before] if carried and before is not None else []
        spans[hour].append(sample)
        before = sample
    return spans.items()
