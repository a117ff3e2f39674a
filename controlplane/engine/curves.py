"""A job's throughput by its size, from what was measured and what is usual.

The model is a power law with local deviations: log T(n) = c + e log n + W(log n). Over the factor
of a few that a job breathes in, Amdahl's law (AFIPS 1967) and Gunther's universal scalability law
(Guerrilla Capacity Planning, 2007) are close to a power law, which is linear in logs and so has an
exact estimate; what isn't (a node or rack boundary) is left to W, a Brownian motion in log n. That
makes the fit a kriging (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.7 and
4.2): measured sizes are honoured within their noise, between two of them the curve is a power law,
and beyond them the uncertainty grows with the distance in log n. The exponent's prior is the usual
one, so that few points, near each other or noisy, hardly move it.

What noise alone can't be told from is kept plausible: more replicas never bring less, nor more than
their proportion. A fall or a superlinear rise is believed only where the deviations of both sizes
were measured too and are too small to explain it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

#: throughput grows with replicas^0.9 where nothing was measured (a concave default)
DEFAULT_EXPONENT = 0.9
#: standard deviations of the prior: of the exponent, and of W over a factor of e in size
EXPONENT_SD = 0.2
LOCAL_SD = 0.2
#: relative noise of a measurement whose deviation isn't known, and the least and most of any
UNKNOWN_NOISE = 0.1
LEAST_NOISE, MOST_NOISE = 0.005, 2.0
#: so many standard deviations are no noise any more
SIGNIFICANT = 3.0
#: d log T / d log n: the least that noise can make of it
LEAST_SLOPE = 0.05
#: a throughput outside of this, in samples/s, is no measurement
LEAST, MOST = 1e-9, 1e15
MOST_SIZE = 1_000_000
#: of more measured sizes than this, so many are used, evenly spread: the fit is cubic in them
MOST_POINTS = 256

Point = tuple[int, float, float | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """Samples/s by replicas. `sizes` are those that were measured, rising; `logs`, `values` and
    `variances`: log n, the estimate of log T there and its variance; `below` and `above`: slopes in
    logs beyond the first and the last; `slope_variance`: that of the exponent.

    Without a measurement the unit is that of one replica: `rate(1)` is 1.
    """

    exponent: float
    sizes: tuple[int, ...] = ()
    logs: tuple[float, ...] = (0.0,)
    values: tuple[float, ...] = (0.0,)
    variances: tuple[float, ...] = (0.0,)
    below: float = DEFAULT_EXPONENT
    above: float = DEFAULT_EXPONENT
    slope_variance: float = EXPONENT_SD**2

    @classmethod
    def fit(
        cls,
        measured: Mapping[int, float],
        deviation: Mapping[int, float] | None = None,
        exponent: float = DEFAULT_EXPONENT,
    ) -> Curve:
        """The curve of samples/s measured by replica count, with their relative standard deviation
        where it is known (0: exact). `exponent` is what is usual. What isn't a finite positive
        throughput of a positive size is ignored. Equal arguments cost one look-up."""
        known = deviation or {}
        points = tuple(
            (n, float(rate), _known(known.get(n)))
            for n, rate in sorted(measured.items())
            if _usable(n, rate)
        )
        if len(points) > MOST_POINTS:
            even = np.linspace(0, len(points) - 1, MOST_POINTS).astype(int)
            points = tuple(points[i] for i in even)
        return _fit(points, exponent)

    def rate(self, n: int) -> float:
        """Samples/s with n replicas; 0 for none."""
        if n <= 0:
            return 0.0
        x = math.log(n)
        logs, values = self.logs, self.values
        i = bisect_right(logs, x)
        if i == 0:
            return math.exp(values[0] - self.below * (logs[0] - x))
        if i == len(logs):
            return math.exp(values[-1] + self.above * (x - logs[-1]))
        part = (x - logs[i - 1]) / (logs[i] - logs[i - 1])
        return math.exp(values[i - 1] + part * (values[i] - values[i - 1]))

    def uncertainty(self, n: int) -> float:
        """Relative standard deviation of `rate(n)`: what it may be wrong by. Grows with the
        distance (in logs) from the sizes that were measured."""
        if n <= 0:
            return 0.0
        x, logs = math.log(n), self.logs
        i = bisect_right(logs, x)
        if 0 < i < len(logs):
            gap = logs[i] - logs[i - 1]
            part = (x - logs[i - 1]) / gap
            bridge = LOCAL_SD**2 * gap * part * (1 - part)
            ends = (1 - part) * self.variances[i - 1] + part * self.variances[i]
            return math.sqrt(ends + bridge)
        nearest = 0 if i == 0 else -1
        far = abs(x - logs[nearest])
        variance = self.variances[nearest] + LOCAL_SD**2 * far + self.slope_variance * far**2
        return math.sqrt(variance)


def _usable(n: object, rate: object) -> bool:
    if isinstance(n, bool) or not isinstance(n, int) or not 0 < n <= MOST_SIZE:
        return False
    return isinstance(rate, int | float) and LEAST < rate < MOST


def _known(deviation: float | None) -> float | None:
    """A relative standard deviation within reason; None for one that says nothing."""
    if deviation is None or not 0 <= deviation < math.inf:
        return None
    return min(MOST_NOISE, max(LEAST_NOISE, deviation))


@lru_cache(maxsize=8192)
def _fit(points: tuple[Point, ...], exponent: float) -> Curve:
    if not points:
        return Curve(exponent, below=exponent, above=exponent)
    sizes = tuple(n for n, _, _ in points)
    logs = tuple(math.log(n) for n in sizes)
    noise = [UNKNOWN_NOISE if known is None else known for _, _, known in points]
    if len(points) == 1:
        value = math.log(points[0][1])
        return Curve(exponent, sizes, logs, (value,), (noise[0] ** 2,), exponent, exponent)
    estimate, variances, slope, slope_variance = _krige(points, logs, noise, exponent)
    values = _plausible(points, logs, estimate, noise)
    slope = min(1.0, max(LEAST_SLOPE, slope))
    first = (values[1] - values[0]) / (logs[1] - logs[0])
    last = (values[-1] - values[-2]) / (logs[-1] - logs[-2])
    return Curve(
        exponent=slope,
        sizes=sizes,
        logs=logs,
        values=tuple(values),
        variances=tuple(variances),
        below=min(1.0, max(slope, first)),
        above=min(slope, last),
        slope_variance=slope_variance,
    )


def _krige(
    points: tuple[Point, ...], logs: tuple[float, ...], noise: list[float], exponent: float
) -> tuple[list[float], list[float], float, float]:
    """(log T and its variance at the measured sizes, exponent and its variance): the posterior,
    with a flat prior for the level."""
    x = np.array(logs)
    residual = np.array([math.log(rate) for _, rate, _ in points]) - exponent * x
    level = residual.mean()
    along = x - x[0]
    prior = LOCAL_SD**2 * np.minimum.outer(along, along) + EXPONENT_SD**2 * np.outer(along, along)
    prior += 1e3  # the level: as good as flat beside variances of at most MOST_NOISE**2
    gain = np.linalg.solve(prior + np.diag(np.square(noise)), prior).T
    estimate = gain @ (residual - level) + level + exponent * x
    variances = np.maximum(np.diag(prior - gain @ prior), 1e-9)
    weights = np.linalg.solve(prior + np.diag(np.square(noise)), EXPONENT_SD**2 * along)
    slope = exponent + float(weights @ (residual - level))
    slope_variance = max(0.0, EXPONENT_SD**2 * (1 - float(weights @ along)))
    return estimate.tolist(), variances.tolist(), slope, slope_variance


def _plausible(
    points: tuple[Point, ...], logs: tuple[float, ...], values: list[float], noise: list[float]
) -> list[float]:
    """The estimates with slopes from `LEAST_SLOPE` to 1 wherever noise may be to blame for others
    (weighted isotonic regression), and concave too where the measurements allow it."""
    found = list(values)
    for begins, ends in _runs(points, logs, noise):
        x, weights = logs[begins:ends], [1 / s**2 for s in noise[begins:ends]]
        part = found[begins:ends]
        part = _rising([v - LEAST_SLOPE * at for v, at in zip(part, x, strict=True)], weights)
        part = [v + LEAST_SLOPE * at for v, at in zip(part, x, strict=True)]
        part = _rising([at - v for v, at in zip(part, x, strict=True)], weights)
        part = [at - v for v, at in zip(part, x, strict=True)]
        found[begins:ends] = _concave(x, part, noise[begins:ends])
    return found


def _runs(
    points: tuple[Point, ...], logs: tuple[float, ...], noise: list[float]
) -> list[tuple[int, int]]:
    """The measured sizes, cut where a fall or a superlinear rise is no noise."""
    cuts = [0]
    for i, ((_, low, known), (_, high, known_too)) in enumerate(pairwise(points), start=1):
        rise, most = math.log(high / low), logs[i] - logs[i - 1]
        excess = max(-rise, rise - most)
        measured = known is not None and known_too is not None
        if measured and excess > SIGNIFICANT * math.hypot(noise[i - 1], noise[i]):
            cuts.append(i)
    return list(zip(cuts, [*cuts[1:], len(points)], strict=True))


def _concave(x: tuple[float, ...], values: list[float], noise: list[float]) -> list[float]:
    """The values with slopes that never rise, if that moves none by more than its noise. Slopes of
    at most 1 in logs that fall with log n make the rate itself concave in n."""
    if len(values) < 3:
        return values
    steps = [b - a for a, b in pairwise(x)]
    slopes = [(b - a) / step for (a, b), step in zip(pairwise(values), steps, strict=True)]
    falling = [-slope for slope in _rising([-slope for slope in slopes], steps)]
    made = [0.0]
    for slope, step in zip(falling, steps, strict=True):
        made.append(made[-1] + slope * step)
    weights = [1 / s**2 for s in noise]
    pairs = zip(values, made, weights, strict=True)
    shift = sum((v - m) * w for v, m, w in pairs) / sum(weights)
    moved = [m + shift for m in made]
    near = all(abs(m - v) <= s for m, v, s in zip(moved, values, noise, strict=True))
    return moved if near else values


def _rising(values: list[float], weights: list[float]) -> list[float]:
    """Weighted isotonic regression by pooling adjacent violators (Barlow et al., 1972)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            other, heavy, n = blocks.pop()
            total = heavy + block[1]
            block = ((other * heavy + block[0] * block[1]) / total, total, n + block[2])
        blocks.append(block)
    return [value for value, _, n in blocks for _ in range(n)]
