"""Which replica is slower than its peers: robust z-scores of their own work's time.

What is compared is each replica's own work, loading and computing, in seconds a sample: in the step
time all look alike, since everybody waits for the slowest. A replica's figure is its median over a
sliding window of steps, so that a pause now and then doesn't count. Its score is the modified
z-score 0.6745 * (x - median) / MAD across replicas (Iglewicz and Hoaglin, How to Detect and Handle
Outliers, 1993, who call above 3.5 an outlier); the floor under MAD keeps replicas that are as good
as alike from being told apart. Standard library only.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

_TO_SIGMA = 0.6745  # of a normal distribution, MAD is 0.6745 sigma
_MOST_Z = 1e6  # beyond it a score says nothing more


@dataclass(frozen=True, slots=True)
class StragglerOptions:
    """`window` steps make a replica's figure, compared every `every` steps. Flagged after `after`
    comparisons in a row with a score above `threshold`, cleared after as many below `clear`; what
    lies between changes nothing. `floor` is the least MAD as a part of the median: with 0.02 a
    replica less than 10 % slower is never flagged.

    Two replicas have no spread to speak of: the slower is flagged above `pair_ratio` times the
    other and cleared below `pair_clear` times."""

    window: int = 10
    every: int = 2
    after: int = 3
    threshold: float = 3.5
    clear: float = 2.0
    floor: float = 0.02
    pair_ratio: float = 1.5
    pair_clear: float = 1.2

    def __post_init__(self) -> None:
        for name in ("window", "every", "after"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1 (got {getattr(self, name)})")
        if not 0 < self.floor < 1:
            raise ValueError(f"floor: must be between 0 and 1 (got {self.floor})")
        for low, high in (("clear", "threshold"), ("pair_clear", "pair_ratio")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low}: must not be above {high} (got {getattr(self, low)})")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A replica was flagged, or `cleared`. `work_s` is its own work a sample, `median_s` that of
    all (of two replicas, the other's), in seconds."""

    replica: str
    z_score: float
    work_s: float
    median_s: float
    cleared: bool = False


@dataclass(slots=True)
class _Replica:
    works: deque[float]
    flagged: bool = False
    streak: int = 0  # comparisons in a row that speak for the other state


class Stragglers:
    """`observe` is called by the leader after each commit. Not thread-safe."""

    def __init__(self, options: StragglerOptions | None = None) -> None:
        self.options = options or StragglerOptions()
        self._replicas: dict[str, _Replica] = {}
        self._step = -1
        self._observed = 0

    @property
    def flagged(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, each in self._replicas.items() if each.flagged))

    def observe(self, step: int, work: Mapping[str, float]) -> list[Verdict]:
        """`work`: seconds a sample by replica name, of all that computed in this step. Whoever
        isn't in it (gone, or without a share) is forgotten. Numbers that can't be a time (not
        finite, not above 0) are passed over, and so is a step that was seen. Returns changes."""
        if step <= self._step:
            return []
        self._step = step
        self._observed += 1
        for name in self._replicas.keys() - work.keys():
            del self._replicas[name]
        for name, seconds in work.items():
            known = self._replicas.get(name)
            if known is None:
                known = self._replicas[name] = _Replica(deque(maxlen=self.options.window))
            if math.isfinite(seconds) and seconds > 0:
                known.works.append(seconds)
        return self._compare() if self._observed % self.options.every == 0 else []

    def _compare(self) -> list[Verdict]:
        typical = {
            name: statistics.median(each.works)
            for name, each in self._replicas.items()
            if len(each.works) == self.options.window
        }
        if len(typical) < 2:
            return []
        compare = pair if len(typical) == 2 else across
        judged = compare(typical, self.options).items()
        found = (self._judge(name, typical[name], score) for name, score in judged)
        return [verdict for verdict in found if verdict is not None]

    def _judge(self, name: str, work_s: float, score: Score) -> Verdict | None:
        """The change this comparison makes, if it makes one."""
        known = self._replicas[name]
        against = score.fast if known.flagged else score.slow
        known.streak = known.streak + 1 if against else 0
        if known.streak < self.options.after:
            return None
        known.flagged, known.streak = not known.flagged, 0
        return Verdict(name, score.z, work_s, score.median_s, cleared=not known.flagged)


@dataclass(frozen=True, slots=True)
class Score:
    """One replica in one comparison; neither `slow` nor `fast` in between."""

    z: float
    median_s: float
    slow: bool
    fast: bool


def across(typical: Mapping[str, float], options: StragglerOptions) -> dict[str, Score]:
    """Three replicas and more: modified z-scores."""
    median = statistics.median(typical.values())
    mad = statistics.median(abs(x - median) for x in typical.values())
    spread = max(mad, options.floor * median)
    out = {}
    for name, x in typical.items():
        z = min(_TO_SIGMA * (x - median) / spread, _MOST_Z)
        out[name] = Score(z, median, slow=z > options.threshold, fast=z < options.clear)
    return out


def pair(typical: Mapping[str, float], options: StragglerOptions) -> dict[str, Score]:
    """Two replicas: each one's ratio to the other decides. The score takes the floor as spread."""
    (a, x), (b, y) = typical.items()
    out = {}
    for name, mine, other in ((a, x, y), (b, y, x)):
        z = min(_TO_SIGMA * (mine - other) / (options.floor * other), _MOST_Z)
        ratio = mine / other
        out[name] = Score(
            z, other, slow=ratio > options.pair_ratio, fast=ratio < options.pair_clear
        )
    return out
