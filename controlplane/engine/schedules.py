"""Windows of time in which the bounds of an elasticity policy differ.

A window is a mapping:

    {"name": "nights", "days": ["mon", "fri"], "from": "20:00", "until": "06:00",
     "timezone": "Europe/Berlin", "min_replicas": 4, "max_replicas": 64}

`days` (all if left out) are those on which it begins; one that ends at or before its `from` ends on
the next day; at least one bound is given, and the other stays the policy's own. Where windows
overlap the first in the list holds.

A wall-clock time stands for the first instant at which the clocks of its zone show it or a later
one. So a window that begins within the hour that is skipped in spring begins when the clocks jump,
one that lies within that hour doesn't take place, times that occur twice in autumn mean the first
occurrence, and windows that adjoin on paper adjoin on every day of the year.

Zones come from the IANA database by `zoneinfo`, which reads a file when a zone is first named and
keeps it: the one input of the engine that isn't an argument.
"""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from controlplane.engine.fields import MOST_REPLICAS, FieldError

if TYPE_CHECKING:
    from controlplane.engine.policy import ElasticityPolicy

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KEYS = ("name", "days", "from", "until", "timezone", "min_replicas", "max_replicas")
BOUNDS = ("min_replicas", "max_replicas")
#: more windows than this are a mistake, and would slow every cycle
MOST_WINDOWS = 32
#: a window that takes place at all does so within two weeks: one a week may lie in skipped hours
HORIZON_DAYS = 15

DAY_S = 86_400
DAY_MIN = 24 * 60
CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")


@dataclass(frozen=True, slots=True)
class _Window:
    """`start` and `end` in minutes from midnight of the day on which it begins; `days` 0..6."""

    name: str
    days: frozenset[int]
    start: int
    end: int
    zone: str
    low: int | None
    high: int | None


def validate_schedule(policy: ElasticityPolicy) -> list[FieldError]:
    """What is wrong with a policy's windows, by path (`schedule[0].from`); empty if nothing is."""
    if len(policy.schedule) > MOST_WINDOWS:
        said = f"must have at most {MOST_WINDOWS} windows"
        return [FieldError("schedule", len(policy.schedule), said)]
    errors: list[FieldError] = []
    names: set[object] = set()
    for i, window in enumerate(policy.schedule):
        found = _form_errors(window) or _bound_errors(policy, window)
        if not found and window["name"] in names:
            found = [("name", window["name"], "must differ from the names of the other windows")]
        if not found:
            names.add(window["name"])
        errors.extend(_located(i, *error) for error in found)
    return errors


def bounds_at(policy: ElasticityPolicy, now: float) -> tuple[str | None, ElasticityPolicy]:
    """The window that holds at `now` (unix seconds; None: none does), and the policy with the
    bounds that hold then. It keeps its schedule, for `next_change`; that was written beside the
    policy's own bounds, so don't validate the result again.

    Its valid sizes stay on the grid of the policy: `min + k*step`, also below its own minimum
    where the window's is lower, or those of its list within the window's bounds. The policy must
    be valid. Takes some tens of microseconds: call it once a policy and cycle, not once a job.
    """
    if not policy.schedule:
        return None, policy
    windows = _read(policy)
    starts, holders = _timeline(windows, int(now // DAY_S))
    holder = holders[bisect_right(starts, now) - 1]
    if holder is None:
        return None, policy
    window = windows[holder]
    return window.name, _within(policy, window.low, window.high)


def next_change(policy: ElasticityPolicy, now: float) -> float | None:
    """When after `now` another window (or none) begins to hold, unix seconds; None: never. The
    policy must be valid."""
    if not policy.schedule:
        return None
    windows = _read(policy)
    first = int(now // DAY_S)
    starts, holders = _timeline(windows, first)
    at = bisect_right(starts, now)
    if at < len(starts):
        return starts[at]
    holder = holders[-1]
    for day in range(first + 1, first + HORIZON_DAYS):
        starts, holders = _timeline(windows, day)
        for start, other in zip(starts, holders, strict=True):
            if other != holder:
                return start
    return None


# -- reading ---------------------------------------------------------------------------------

Problem = tuple[str, object, str]


def _located(i: int, key: str, value: object, message: str) -> FieldError:
    return FieldError(f"schedule[{i}].{key}" if key else f"schedule[{i}]", value, message)


def _form_errors(window: object) -> list[Problem]:
    """(key, value, what is wrong) of one window by itself."""
    if not isinstance(window, Mapping):
        return [("", window, f"must be a mapping with the keys {', '.join(KEYS)}")]
    found: list[Problem] = [
        (str(key), value, f"must be left out: a window has the keys {', '.join(KEYS)}")
        for key, value in window.items()
        if key not in KEYS
    ]
    name, zone, days = window.get("name"), window.get("timezone"), window.get("days", DAYS)
    if not isinstance(name, str) or not 0 < len(name.strip()) <= 63:
        found.append(("name", name, "must be a name of 1 to 63 characters"))
    if not isinstance(days, list | tuple) or not days or any(day not in DAYS for day in days):
        found.append(("days", days, f"must be a list of {', '.join(DAYS)}; left out: all of them"))
    found.extend(_time_errors(window))
    if not isinstance(zone, str) or _zone(zone) is None:
        found.append(("timezone", zone, "must be a zone of the IANA database, e.g. Europe/Berlin"))
    if all(window.get(key) is None for key in BOUNDS):
        said = "must be given, or max_replicas: a window without bounds changes nothing"
        found.append(("min_replicas", None, said))
    return found


def _time_errors(window: Mapping[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    for key in ("from", "until"):
        value = window.get(key)
        midnight = key == "from" and value == "24:00"
        if not isinstance(value, str) or not CLOCK.fullmatch(value) or midnight:
            last = "23:59" if key == "from" else "24:00"
            found.append((key, value, f"must be a time from 00:00 to {last}, as HH:MM"))
    if not found and window["from"] == window["until"]:
        said = "must differ from `from`; for a whole day give 00:00 and 24:00"
        found.append(("until", window["until"], said))
    return found


def _bound_errors(policy: ElasticityPolicy, window: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the bounds of a window that is well formed, beside those of the policy
    (nothing while these are wrong themselves)."""
    found: list[Problem] = []
    for key in BOUNDS:
        value = window.get(key)
        if value is not None and not (_whole(value) and 1 <= value <= MOST_REPLICAS):
            said = f"must be a whole number from 1 to {MOST_REPLICAS}, or left out"
            found.append((key, value, said))
    if found or not _usable(policy):
        return found
    low, high = window.get("min_replicas"), window.get("max_replicas")
    own_low, own_high = policy.min_replicas, policy.max_replicas
    if policy.replica_discrete_values is not None:
        if low is not None and low < own_low:
            found.append(("min_replicas", low, f"must be at least {own_low}, the policy's own: "
                          "replica_discrete_values lists nothing below"))  # fmt: skip
        if high is not None and high > own_high:
            found.append(("max_replicas", high, f"must be at most {own_high}, the policy's own: "
                          "replica_discrete_values lists nothing above"))  # fmt: skip
    if not found and not _has_sizes(_within(policy, low, high)):
        key = "max_replicas" if high is not None else "min_replicas"
        lowest = own_low if low is None else low
        highest = own_high if high is None else high
        said = f"must leave a valid size: none lies between {lowest} and {highest} in this window"
        found.append((key, window[key], said))
    return found


def _usable(policy: ElasticityPolicy) -> bool:
    low, high = policy.min_replicas, policy.max_replicas
    step, listed = policy.replica_increment_step, policy.replica_discrete_values
    return (
        _whole(low)
        and _whole(high)
        and 1 <= low <= high
        and (step is None or (_whole(step) and step >= 1))
        and (listed is None or all(_whole(n) for n in listed))
    )


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _read(policy: ElasticityPolicy) -> tuple[_Window, ...]:
    return tuple(_window(window) for window in policy.schedule)


def _window(window: Mapping[str, Any]) -> _Window:
    start, end = _minutes(window["from"]), _minutes(window["until"])
    return _Window(
        name=window["name"],
        days=frozenset(DAYS.index(day) for day in window.get("days", DAYS)),
        start=start,
        end=end if end > start else end + DAY_MIN,
        zone=window["timezone"],
        low=window.get("min_replicas"),
        high=window.get("max_replicas"),
    )


def _minutes(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def _within(policy: ElasticityPolicy, low: int | None, high: int | None) -> ElasticityPolicy:
    """The policy with other bounds, the lower one raised to the next size of its grid."""
    own, step = policy.min_replicas, policy.replica_increment_step or 1
    first = own if low is None else own + -(-(low - own) // step) * step
    last = policy.max_replicas if high is None else high
    listed = policy.replica_discrete_values
    if listed is not None:
        listed = tuple(n for n in listed if n <= last and (low is None or n >= low))
        first = min(listed, default=first)
    return dataclasses.replace(
        policy, min_replicas=first, max_replicas=last, replica_discrete_values=listed
    )


def _has_sizes(policy: ElasticityPolicy) -> bool:
    if policy.replica_discrete_values is not None:
        return bool(policy.replica_discrete_values)
    return policy.min_replicas <= policy.max_replicas


# -- time ------------------------------------------------------------------------------------


def _zone(name: str) -> tzinfo | None:
    """The zone, or None if there is none of this name; UTC needs no database."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
        return None


@lru_cache(maxsize=4096)
def _timeline(
    windows: Sequence[_Window], day: int
) -> tuple[tuple[float, ...], tuple[int | None, ...]]:
    """Instants of a day (UTC, counted from 1970) at which the window that holds changes, its first
    instant among them, and the window that holds from each on."""
    begins, ends = float(day * DAY_S), float((day + 1) * DAY_S)
    spans = [
        (start, end, i)
        for i, window in enumerate(windows)
        for start, end in _spans(window, begins, ends)
    ]
    cuts = {begins, *(max(begins, start) for start, _, _ in spans)}
    cuts |= {end for _, end, _ in spans if end < ends}
    starts: list[float] = []
    holders: list[int | None] = []
    for cut in sorted(cuts):
        holder = min((i for start, end, i in spans if start <= cut < end), default=None)
        if not starts or holder != holders[-1]:
            starts.append(cut)
            holders.append(holder)
    return tuple(starts), tuple(holders)


def _spans(window: _Window, begins: float, ends: float) -> list[tuple[float, float]]:
    """Where the window takes place within [begins, ends)."""
    zone = _zone(window.zone)
    assert zone is not None
    date = datetime.fromtimestamp(begins, UTC).replace(hour=0, minute=0, second=0, tzinfo=None)
    found = []
    for offset in range(-3, 3):  # a zone is at most 14 h ahead or 12 h behind, a window 24 h long
        midnight = date + timedelta(days=offset)
        if midnight.weekday() not in window.days:
            continue
        start = _instant(midnight + timedelta(minutes=window.start), zone)
        end = _instant(midnight + timedelta(minutes=window.end), zone)
        if start < end and end > begins and start < ends:
            found.append((start, end))
    return found


def _instant(wall: datetime, zone: tzinfo) -> float:
    """The first instant at which the clocks of a zone show `wall` or later, unix seconds (PEP 495:
    fold 0 is the first of two; of a time that is skipped it counts by the offset before)."""
    late = wall.replace(tzinfo=zone, fold=0).timestamp()
    if datetime.fromtimestamp(late, zone).replace(tzinfo=None, fold=0) == wall:
        return late
    early = wall.replace(tzinfo=zone, fold=1).timestamp()
    after = datetime.fromtimestamp(late, zone).utcoffset()
    while late - early > 1:
        middle = (early + late) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == after:
            late = middle
        else:
            early = middle
    return late
