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
    states = _smooth(points, logs, noise, exponent)
    values = _plausible(points, logs, [state.level for state in states], noise)
    slope = min(1.0, max(LEAST_SLOPE, states[-1].slope))
    first = (values[1] - values[0]) / (logs[1] - logs[0])
    last = (values[-1] - values[-2]) / (logs[-1] - logs[-2])
    return Curve(
        exponent=slope,
        sizes=sizes,
        logs=logs,
        values=tuple(values),
        variances=tuple(max(1e-9, state.level_variance) for state in states),
        below=min(1.0, max(slope, first)),
        above=min(slope, last),
        slope_variance=max(0.0, states[-1].slope_variance),
    )


@dataclass(slots=True)
class _State:
    """Level (log T) and slope (the exponent) with their covariance."""

    level: float
    slope: float
    level_variance: float
    covariance: float
    slope_variance: float


def _smooth(
    points: tuple[Point, ...], logs: tuple[float, ...], noise: list[float], exponent: float
) -> list[_State]:
    """The posterior at each measured size: the kriging above as a Kalman filter and smoother along
    log n (Rauch, Tung and Striebel, 1965), which is linear in the number of sizes. The level's
    prior is flat."""
    now = _State(math.log(points[0][1]), exponent, noise[0] ** 2, 0.0, EXPONENT_SD**2)
    filtered, predicted = [now], [now]
    for i in range(1, len(points)):
        ahead = _ahead(now, logs[i] - logs[i - 1])
        now = _seen(ahead, math.log(points[i][1]), noise[i] ** 2)
        predicted.append(ahead)
        filtered.append(now)
    smoothed = [now]
    for i in range(len(points) - 2, -1, -1):
        gap = logs[i + 1] - logs[i]
        smoothed.append(_looked_back(filtered[i], predicted[i + 1], smoothed[-1], gap))
    return smoothed[::-1]


def _ahead(now: _State, gap: float) -> _State:
    """What is expected so much further on in log n."""
    variance = now.level_variance + 2 * gap * now.covariance + gap**2 * now.slope_variance
    return _State(
        now.level + gap * now.slope,
        now.slope,
        variance + LOCAL_SD**2 * gap,
        now.covariance + gap * now.slope_variance,
        now.slope_variance,
    )


def _seen(ahead: _State, value: float, noise: float) -> _State:
    """With a measurement of the level, of this variance."""
    total = ahead.level_variance + noise
    of_level, of_slope = ahead.level_variance / total, ahead.covariance / total
    miss = value - ahead.level
    return _State(
        ahead.level + of_level * miss,
        ahead.slope + of_slope * miss,
        ahead.level_variance * (1 - of_level),
        ahead.covariance * (1 - of_level),
        ahead.slope_variance - of_slope * ahead.covariance,
    )


def _looked_back(here: _State, ahead: _State, later: _State, gap: float) -> _State:
    """With what was learned of the next size too: `ahead` is what was expected there, `later` what
    is known of it now."""
    determinant = ahead.level_variance * ahead.slope_variance - ahead.covariance**2
    a = here.level_variance + gap * here.covariance
    b = here.covariance + gap * here.slope_variance
    v, c, s = (
        ahead.slope_variance / determinant,
        -ahead.covariance / determinant,
        ahead.level_variance / determinant,
    )
    # the gain, 2 x 2: cov(here, there) / var(there)
    ll, ls = a * v + here.covariance * c, a * c + here.covariance * s
    sl, ss = b * v + here.slope_variance * c, b * c + here.slope_variance * s
    level, slope = later.level - ahead.level, later.slope - ahead.slope
    dv = later.level_variance - ahead.level_variance
    dc = later.covariance - ahead.covariance
    ds = later.slope_variance - ahead.slope_variance
    return _State(
        here.level + ll * level + ls * slope,
        here.slope + sl * level + ss * slope,
        here.level_variance + ll * ll * dv + 2 * ll * ls * dc + ls * ls * ds,
        here.covariance + ll * sl * dv + (ll * ss + ls * sl) * dc + ls * ss * ds,
        here.slope_variance + sl * sl * dv + 2 * sl * ss * dc + ss * ss * ds,
    )


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
