"""What is measured while a simulation runs: piecewise constant levels, integrated exactly."""

from __future__ import annotations

from dataclasses import dataclass, field

#: levels, in accelerators. capacity: of nodes that are ready. training, inelastic: held by their
#: pods; productive: of training jobs that make progress; waiting: asked for by inelastic pods
#: that have no place; wanted: asked for by inelastic pods, with or without one
LEVELS = ("capacity", "training", "productive", "inelastic", "waiting", "wanted")
#: a report keeps at most so many points of each level
MOST_POINTS = 1500


@dataclass(slots=True)
class Meter:
    """`levels` now; `sums` in accelerator-seconds; `points`: (time, levels) at each change."""

    now: float = 0.0
    levels: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0))
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0.0))
    jobs_running: int = 0
    jobs_waiting: int = 0
    points: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def advance(self, now: float) -> None:
        took = now - self.now
        if took > 0:
            for name, level in self.levels.items():
                self.sums[name] += level * took
            self.now = now

    def set(self, now: float, **levels: int) -> None:
        """New levels from now on."""
        self.advance(now)
        self.levels.update(levels)

    def mark(self, now: float) -> None:
        """Keep a point of the curves, if anything has changed since the last."""
        values = (*self.levels.values(), self.jobs_running, self.jobs_waiting)
        if not self.points or self.points[-1][1] != values:
            if self.points and self.points[-1][0] == now:
                self.points.pop()
            self.points.append((now, values))


def series(
    points: list[tuple[float, tuple[int, ...]]], end: float, most: int = MOST_POINTS
) -> dict[str, list[float]]:
    """Time averages of each level over at most `most` equal spans up to `end`; `t_s` is the start
    of each span."""
    names = (*LEVELS, "jobs_running", "jobs_waiting")
    if not points or end <= points[0][0]:
        return {"t_s": [], **{name: [] for name in names}}
    begin, count = points[0][0], min(most, max(1, int(end - points[0][0])))
    width = (end - begin) / count
    sums = [[0.0] * count for _ in names]
    for i, (at, values) in enumerate(points):
        until = points[i + 1][0] if i + 1 < len(points) else end
        _spread(sums, values, at - begin, min(until, end) - begin, width)
    return {
        "t_s": [round(begin + i * width, 3) for i in range(count)],
        **{
            name: [round(value / width, 3) for value in row]
            for name, row in zip(names, sums, strict=True)
        },
    }


def _spread(
    sums: list[list[float]], values: tuple[int, ...], start: float, stop: float, width: float
) -> None:
    """Add levels that held from start to stop to the spans that they touch."""
    count = len(sums[0])
    first = min(count - 1, int(start / width))
    last = min(count - 1, int(stop / width))
    for span in range(first, last + 1):
        inside = min(stop, (span + 1) * width) - max(start, span * width)
        if inside > 0:
            for row, value in zip(sums, values, strict=True):
                row[span] += value * inside
