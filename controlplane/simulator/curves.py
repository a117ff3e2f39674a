"""Inference as it comes and goes: a curve of wanted accelerators, turned into pods.

When the curve rises, pods are made; when it falls, the newest leave, as a Deployment's do.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from controlplane.simulator.fields import BadInput, Fields
from controlplane.simulator.spec import HOUR_S, PodSpec

SHAPES = ("linear", "step")
#: a curve is looked at this often, seconds
SAMPLE_S = 60.0
#: a pod is what a pod of the curve looks like
MakePod = Callable[[str, float, float], PodSpec]


@dataclass(frozen=True, slots=True)
class Curve:
    """Accelerators by time in seconds; `times` rise. `linear` between points or a step at each;
    repeated every `period_s` (infinite: level after the last)."""

    times: tuple[float, ...]
    values: tuple[float, ...]
    linear: bool = True
    period_s: float = math.inf

    def at(self, seconds: float) -> float:
        """Wanted at a time; before the first point of a repeated curve, what the last left."""
        repeats = self.period_s < math.inf
        at = seconds % self.period_s if repeats else seconds
        i = bisect_right(self.times, at) - 1
        if i < 0 and not repeats:
            return self.values[0]
        last = i == len(self.times) - 1
        if not self.linear or (last and not repeats):
            return self.values[i]
        t0, v0 = self.times[i], self.values[i]
        t1, v1 = self.times[(i + 1) % len(self.times)], self.values[(i + 1) % len(self.times)]
        if i < 0:
            t0 -= self.period_s
        if last:
            t1 += self.period_s
        return v0 if t1 == t0 else v0 + (v1 - v0) * (at - t0) / (t1 - t0)


def pods_of(curve: Curve, each: int, until_s: float, make: MakePod) -> list[PodSpec]:
    """Pods of `each` accelerators that hold at least what the curve wants, up to a time."""
    open_since: list[float] = []
    pods: list[PodSpec] = []

    def close(at: float) -> None:
        number = len(open_since) - 1
        since = open_since.pop()
        pods.append(make(f"{number}-{len(pods)}", since, at))

    changes = curve.times if not curve.linear and curve.period_s == math.inf else None
    for at in changes if changes is not None else _samples(until_s):
        if at >= until_s:
            break
        wanted = max(0, math.ceil(curve.at(at) / each - 1e-9))
        while len(open_since) > wanted:
            close(at)
        open_since.extend([at] * (wanted - len(open_since)))
    while open_since:
        close(math.inf)
    return sorted(pods, key=lambda pod: (pod.start_s, pod.name))


def read_curve(fields: Fields, folder: Path) -> Curve:
    """One of `hours`, `points`, `sinusoid` or `csv` (docs/guides/simulator.md)."""
    given = [name for name in ("hours", "points", "sinusoid", "csv") if fields.has(name)]
    for name in ("hours", "points", "sinusoid", "csv"):
        fields.raw(name)
    if len(given) != 1:
        raise fields.bad("hours", "give one of hours, points, sinusoid or csv")
    linear = fields.choice("shape", SHAPES, "step" if given == ["csv"] else "linear") == "linear"
    if given == ["sinusoid"]:
        return _sinusoid(fields.part("sinusoid"))
    if given == ["csv"]:
        return curve_from_csv(fields.file("csv", folder), linear=linear)
    if given == ["hours"]:
        values = fields.raw("hours")
        if not isinstance(values, list) or len(values) != 24:
            raise fields.bad("hours", "must be 24 numbers of accelerators, one an hour of the day")
        points = [(float(hour), value) for hour, value in enumerate(values)]
    else:
        points = fields.raw("points")
    return _daily(fields, given[0], points, linear, fields.number("repeat_h", 24.0, above=True))


def curve_from_csv(path: Path, *, linear: bool = False) -> Curve:
    """Columns `time_s` (rising) and `accelerators`; a step at each row."""
    times: list[float] = []
    values: list[float] = []
    for row in rows(path, ("time_s", "accelerators")):
        times.append(row.number("time_s"))
        values.append(row.number("accelerators"))
        if len(times) > 1 and times[-1] <= times[-2]:
            raise row.bad("time_s", "must rise from row to row")
        row.done()
    if not times:
        raise BadInput(str(path), 0, "has no rows; give time_s and accelerators")
    return Curve(tuple(times), tuple(values), linear)


def rows(path: Path, needed: tuple[str, ...]) -> list[Fields]:
    """The rows of a CSV file with a header; empty cells are left out. Raises BadInput, naming
    file, line and column."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or ()
            missing = [name for name in needed if name not in header]
            if missing:
                listed = ", ".join(header) or "none"
                raise BadInput(
                    "column", missing[0], f"is missing; the columns are {listed}", str(path)
                )
            return [
                Fields(_filled(row, path, reader.line_num), f"line {reader.line_num}", str(path))
                for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput("file", str(path), f"can't be read as CSV ({error})") from error


def _filled(row: Mapping[str | None, str | None], path: Path, line: int) -> dict[str, str]:
    if None in row:
        raise BadInput(f"line {line}", row[None], "has more cells than the header", str(path))
    return {str(key): value for key, value in row.items() if value}


def _samples(until_s: float) -> list[float]:
    return [i * SAMPLE_S for i in range(math.ceil(until_s / SAMPLE_S))]


def _sinusoid(fields: Fields) -> Curve:
    """Between `low` and `high`, highest at `peak_hour`, once a day."""
    low, high = fields.number("low"), fields.number("high")
    if high < low:
        raise fields.bad("high", f"must be at least low ({low:g})")
    peak = fields.number("peak_hour", 14.0, most=24.0)
    fields.done()
    times = [i * SAMPLE_S * 5 for i in range(int(24 * HOUR_S / (SAMPLE_S * 5)))]
    middle, swing = (low + high) / 2, (high - low) / 2
    values = [middle + swing * math.cos(math.tau * (t / HOUR_S - peak) / 24) for t in times]
    return Curve(tuple(times), tuple(values), True, 24 * HOUR_S)


def _daily(fields: Fields, name: str, points: object, linear: bool, repeat_h: float) -> Curve:
    remedy = "must be a list of [hour, accelerators], hours rising from 0 and below repeat_h"
    try:
        found = [(float(hour), float(value)) for hour, value in points]  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise fields.bad(name, remedy) from error
    hours = [hour for hour, _ in found]
    rising = all(a < b for a, b in pairwise(hours))
    if not found or not rising or hours[0] < 0 or hours[-1] >= repeat_h:
        raise fields.bad(name, remedy)
    if any(not 0 <= value < math.inf for _, value in found):
        raise fields.bad(name, "must hold accelerators of 0 or more")
    return Curve(
        tuple(hour * HOUR_S for hour in hours),
        tuple(value for _, value in found),
        linear,
        repeat_h * HOUR_S,
    )
