"""Step times that were measured at some placements and local batch sizes, and those between them.

Linear interpolation, as in the simulator of Pollux (OSDI 2021, artifact): in the local batch size
where the placement itself was measured, else over (nodes, replicas, local batch size).
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

#: (seconds a step, the part of them that synchronises gradients)
Seconds = tuple[float, float]


class StepTimes:
    """Seconds a step by placement and local batch size (samples an accelerator).

    `placed`: by placement (accelerators on each node, rotated to the smallest order) the measured
    (local batch size, step time, sync time), rising. `spread`: the same by nodes and replicas.
    """

    def __init__(
        self,
        placed: dict[tuple[int, ...], list[tuple[float, float, float]]],
        spread: dict[int, dict[int, list[tuple[float, float, float]]]],
    ) -> None:
        self._placed, self._spread = placed, spread
        self._nodes = sorted(spread)
        locals_ = [row[0] for rows in placed.values() for row in rows]
        self.smallest_local, self.largest_local = int(min(locals_)), int(max(locals_))
        self._known: dict[tuple[tuple[int, ...], float], Seconds] = {}

    @classmethod
    def read(cls, folder: Path) -> StepTimes:
        """From `placements.csv` and `scalability.csv` (columns: /work/shared/traces/README.md)."""
        placed: dict[tuple[int, ...], list[tuple[float, float, float]]] = defaultdict(list)
        means: dict[tuple[int, int, float], list[Seconds]] = defaultdict(list)
        for row in _rows(folder / "placements.csv"):
            placement = tuple(int(digit) for digit in row["placement"])
            local, seconds = float(row["local_bsz"]), _seconds(row)
            placed[smallest_rotation(placement)].append((local, *seconds))
            means[len(placement), sum(placement), local].append(seconds)
        for row in _rows(folder / "scalability.csv"):
            key = int(row["num_nodes"]), int(row["num_replicas"]), float(row["local_bsz"])
            means[key].append(_seconds(row))
        spread: dict[int, dict[int, list[tuple[float, float, float]]]] = {}
        for (nodes, replicas, local), found in sorted(means.items()):
            mean = (sum(part) / len(found) for part in zip(*found, strict=True))
            step, sync = mean
            spread.setdefault(nodes, {}).setdefault(replicas, []).append((local, step, sync))
        return cls({key: sorted(rows) for key, rows in placed.items()}, spread)

    def seconds(self, placement: Sequence[int], local: float) -> Seconds:
        """Seconds of one step, and of its synchronisation, at `local` samples an accelerator."""
        shape = smallest_rotation(tuple(count for count in placement if count))
        if not shape:
            raise ValueError("A placement needs at least one accelerator.")
        known = self._known.get((shape, local))
        if known is None:
            rows = self._placed.get(shape)
            known = _at(rows, local) if rows else self._between(len(shape), sum(shape), local)
            self._known[shape, local] = known
        return known

    def _between(self, nodes: int, replicas: int, local: float) -> Seconds:
        """Between the nearest measured node counts, at the same replicas a node: a straight line in
        (nodes, replicas) that stays within what can be placed. Beyond the last: the last."""
        if nodes in self._spread:
            return self._row(nodes, replicas, local)
        at = bisect_left(self._nodes, nodes)
        if at == 0 or at == len(self._nodes):
            nearest = self._nodes[min(at, len(self._nodes) - 1)]
            return self._row(nearest, replicas, local)
        low, high = self._nodes[at - 1], self._nodes[at]
        per_node = replicas / nodes
        first, last = (self._row(count, per_node * count, local) for count in (low, high))
        return _mix(first, last, (nodes - low) / (high - low))

    def _row(self, nodes: int, replicas: float, local: float) -> Seconds:
        """At a measured node count; replicas outside of what was measured count as the nearest."""
        rows = self._spread[nodes]
        counts = sorted(rows)
        at = bisect_left(counts, replicas)
        if at == 0 or at == len(counts):
            return _at(rows[counts[min(at, len(counts) - 1)]], local)
        low, high = counts[at - 1], counts[at]
        part = (replicas - low) / (high - low)
        return _mix(_at(rows[low], local), _at(rows[high], local), part)


def smallest_rotation(placement: tuple[int, ...]) -> tuple[int, ...]:
    """The rotation that the tables name a placement by: the smallest."""
    turns = range(len(placement))
    return min((placement[i:] + placement[:i] for i in turns), default=placement)


def _at(rows: list[tuple[float, float, float]], local: float) -> Seconds:
    """On the line through the two measured local batch sizes next to `local`. Beyond the largest
    (whose global batch nobody tried) the last line goes on: compute grows with the samples."""
    if len(rows) == 1:
        return rows[0][1:]
    at = min(max(1, bisect_left(rows, (local,))), len(rows) - 1)
    (low, *first), (high, *last) = rows[at - 1], rows[at]
    part = max(0.0, (local - low) / (high - low))
    return _mix((first[0], first[1]), (last[0], last[1]), part)


def _mix(first: Seconds, last: Seconds, part: float) -> Seconds:
    return (
        first[0] + (last[0] - first[0]) * part,
        first[1] + (last[1] - first[1]) * part,
    )


def _seconds(row: dict[str, str]) -> Seconds:
    return float(row["step_time"]), float(row["sync_time"])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
