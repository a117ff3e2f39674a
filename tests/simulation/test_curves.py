"""Inference curves, levels over time and the figures made of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.simulator.curves import Curve, pods_of
from controlplane.simulator.meter import LEVELS, Meter, series
from controlplane.simulator.results import distribution, jain, percentile
from controlplane.simulator.spec import PodSpec
from tests.builders import GPU

DAY = Curve((0.0, 3600.0, 7200.0), (0.0, 8.0, 4.0), linear=True, period_s=86_400.0)


@pytest.mark.parametrize(
    ("curve", "at", "want"),
    [
        (DAY, 0.0, 0.0),
        (DAY, 1800.0, 4.0),
        (DAY, 5400.0, 6.0),
        # from the last point back to the first of the next day
        (DAY, 7200.0 + (86_400.0 - 7200.0) / 2, 2.0),
        (DAY, 86_400.0 + 1800.0, 4.0),
        (Curve((0.0, 10.0), (1.0, 2.0), linear=False), 9.9, 1.0),
        (Curve((0.0, 10.0), (1.0, 2.0), linear=False), 99.0, 2.0),
        (Curve((5.0, 10.0), (1.0, 2.0)), 0.0, 1.0),
        (Curve((5.0, 10.0), (1.0, 2.0)), 99.0, 2.0),
        (Curve((5.0,), (3.0,), period_s=100.0), 2.0, 3.0),
        # before the first point of a day: on the way from yesterday's last
        (Curve((50.0,), (3.0,), linear=False, period_s=100.0), 2.0, 3.0),
    ],
)
def test_a_curve(curve: Curve, at: float, want: float) -> None:
    assert curve.at(at) == pytest.approx(want)


def make(suffix: str, start: float, end: float) -> PodSpec:
    return PodSpec(suffix, start, end, {GPU: 4})


def test_the_newest_pods_leave_first() -> None:
    curve = Curve((0.0, 100.0, 200.0, 300.0), (8.0, 16.0, 5.0, 0.0), linear=False)
    found = [(pod.start_s, pod.end_s) for pod in pods_of(curve, 4, 1000.0, make)]
    # 2, 4, 2 and no pods
    assert found == [(0.0, 300.0), (0.0, 300.0), (100.0, 200.0), (100.0, 200.0)]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=24), st.integers(1, 9))
def test_pods_hold_what_the_curve_wants_and_less_than_one_pod_more(
    values: list[int], each: int
) -> None:
    times = tuple(60.0 * i for i in range(len(values)))
    curve = Curve(times, tuple(map(float, values)), linear=False)
    pods = pods_of(curve, each, 1e5, make)
    for at, value in zip(times, values, strict=True):
        there = sum(pod.start_s <= at < pod.end_s for pod in pods)
        assert there == math.ceil(value / each)
    assert len({pod.name for pod in pods}) == len(pods)


def test_levels_are_integrated_exactly() -> None:
    meter = Meter(now=100.0)
    meter.set(100.0, training=8, capacity=16)
    meter.mark(100.0)
    meter.set(130.0, training=16)
    meter.mark(130.0)
    meter.mark(140.0)  # nothing has changed: no point
    meter.advance(150.0)
    assert meter.sums["training"] == 8 * 30 + 16 * 20
    assert meter.sums["capacity"] == 16 * 50
    assert [at for at, _ in meter.points] == [100.0, 130.0]
    curve = series(meter.points, 150.0, most=5)
    assert curve["t_s"] == [100.0, 110.0, 120.0, 130.0, 140.0]
    assert curve["training"] == [8.0, 8.0, 8.0, 16.0, 16.0]
    assert set(curve) == {"t_s", "jobs_running", "jobs_waiting", *LEVELS}


def test_a_series_keeps_the_sum() -> None:
    meter = Meter(now=0.0)
    for at, n in ((0.0, 3), (7.0, 1), (19.5, 8), (33.0, 0)):
        meter.set(at, training=n)
        meter.mark(at)
    meter.advance(40.0)
    curve = series(meter.points, 40.0, most=7)
    assert sum(curve["training"]) * 40.0 / 7 == pytest.approx(meter.sums["training"], abs=0.05)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([1.0, 1.0, 1.0], 1.0),
        ([1.0, 0.0, 0.0, 0.0], 0.25),
        ([1.0, 3.0], 0.8),
        ([], None),
    ],
)
def test_jains_index(values: list[float], want: float | None) -> None:
    assert jain(values) == want


def test_distributions() -> None:
    values = [float(n) for n in range(1, 201)]
    assert distribution(values) == {
        "n": 200, "mean": 100.5, "p50": 100.0, "p90": 180.0, "p99": 198.0, "max": 200.0,
    }  # fmt: skip
    assert distribution([])["mean"] is None
    assert percentile([7.0], 99) == 7.0
