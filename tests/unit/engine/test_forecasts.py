"""What growth leaves free: spares, a fixed reserve, and what the recorded weeks forecast."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.forecasts import (
    HOURS,
    forecast,
    hour_of_week,
    inflow_by_hour,
    kept_free,
    quantiles_by_hour,
)
from tests.builders import GPU

HOUR = 3600.0
WEEK = HOURS * HOUR
#: Monday 2026-03-02 00:00 UTC
MONDAY = 1_772_409_600.0


def hours(**named):
    """168 zeros but for these: h8=96."""
    return tuple(float(named.get(f"h{i}", 0)) for i in range(HOURS))


@pytest.mark.parametrize(
    ("at", "want"),
    [(MONDAY, 0), (MONDAY - 1, 167), (MONDAY + HOUR, 1), (MONDAY + 24.5 * HOUR, 24),
     (MONDAY + 5 * WEEK + 8 * HOUR, 8), (0.0, 72)],
)  # fmt: skip
def test_hour_of_week(at, want):
    assert hour_of_week(at) == want


@pytest.mark.parametrize(
    ("policy", "at_hour", "want"),
    [
        ({}, 0, (0, "")),
        ({"spares": {GPU: 8}}, 0, (8, "8 as spares")),
        ({"spares": {"amd.com/gpu": 8}}, 0, (0, "")),
        ({"reserves": {GPU: 16}}, 7, (16, "16 reserved for demand of higher priority")),
        ({"spares": {GPU: 8}, "reserves": {GPU: 16}}, 0,
         (24, "8 as spares, 16 reserved for demand of higher priority")),
        # the larger of both counts; the forecast only if a quantile is set
        ({"reserves": {GPU: 16}, "forecast_quantile": 0.9}, 7.5,
         (96, "96 for demand of higher priority that the recorded weeks forecast within 60 min, "
              "quantile 0.9")),
        ({"reserves": {GPU: 100}, "forecast_quantile": 0.9}, 7.5,
         (100, "100 reserved for demand of higher priority")),
        ({"forecast_quantile": 0.9}, 3, (0, "")),
        ({"forecast_quantile": 0.9, "spares": {GPU: 8}}, 3, (8, "8 as spares")),
        # less than one accelerator is one
        ({"forecast_quantile": 0.5, "forecast_horizon_s": 60.0}, 8,
         (2, "2 for demand of higher priority that the recorded weeks forecast within 1 min, "
             "quantile 0.5")),
    ],
)  # fmt: skip
def test_kept_free(policy, at_hour, want):
    found = kept_free(ClusterPolicy(**policy), {GPU: hours(h8=96)}, GPU, MONDAY + at_hour * HOUR)
    assert found == want


@pytest.mark.parametrize("inflow", [{}, {GPU: ()}, {"amd.com/gpu": hours(h0=5)}])
def test_what_was_never_recorded_has_no_forecast(inflow):
    policy = ClusterPolicy(forecast_quantile=0.9, reserves={GPU: 4})
    assert kept_free(policy, inflow, GPU, MONDAY)[0] == 4


@pytest.mark.parametrize(
    ("at_hour", "horizon_h", "want"),
    [
        (7, 1, 0), (7 + 1 / 60, 1, 96), (7.5, 0.25, 0), (7.5, 1, 96), (8, 1, 96), (8.5, 1, 48),
        (8.75, 0.25, 24), (9, 1, 0), (0, 24, 96), (0, 8, 0), (8, 0, 0), (8, -5, 0),
        (8 + 24, HOURS - 24, 0), (9, HOURS, 96), (9, 100 * HOURS, 96),
        # from Sunday night into Monday
        (HOURS - 1, 10, 96),
    ],
)  # fmt: skip
def test_forecast(at_hour, horizon_h, want):
    found = forecast(hours(h8=96), MONDAY + at_hour * HOUR, horizon_h * HOUR)
    assert found == pytest.approx(want)


def every(minutes, levels, start=MONDAY):
    """Samples at even intervals."""
    return [(start + i * minutes * 60, float(level)) for i, level in enumerate(levels)]


@pytest.mark.parametrize(
    ("samples", "want"),
    [
        ([], []),
        (every(10, [8] * 6), [(MONDAY, 0.0)]),
        (every(10, [8, 8, 24, 24, 8, 8]), [(MONDAY, 16.0)]),
        # what leaves isn't inflow; what comes back above where it stood is
        (every(10, [24, 8, 8, 32, 8, 8]), [(MONDAY, 8.0)]),
        (every(10, [24, 8, 8, 8, 8, 8]), [(MONDAY, 0.0)]),
        # the level at the beginning is that of the last sample before it
        (every(10, [0] * 6 + [96] * 6), [(MONDAY, 0.0), (MONDAY + HOUR, 96.0)]),
        # an hour with a hole isn't known; the next one is
        (every(10, [0] * 2 + [96]) + every(10, [96, 0, 0, 100, 0, 0], MONDAY + HOUR),
         [(MONDAY + HOUR, 4.0)]),
        (every(10, [8] * 5, MONDAY + 20 * 60), []),
        (every(30, [8] * 4), []),
    ],
)  # fmt: skip
def test_inflow_by_hour(samples, want):
    assert inflow_by_hour(samples) == want
    assert inflow_by_hour(reversed(samples)) == want


@pytest.mark.parametrize(
    ("values", "q", "want"),
    [
        ([5, 1, 3, 2], 0.5, 2), ([5, 1, 3, 2], 0.51, 3), ([5, 1, 3, 2], 0.75, 3),
        ([5, 1, 3, 2], 0.9, 5), ([5, 1, 3, 2], 1.0, 5), ([5, 1, 3, 2], 0.01, 1), ([7], 0.5, 7),
        ([3, math.nan, math.inf, -4], 0.9, 3),
    ],
)  # fmt: skip
def test_quantile_of_an_hour(values, q, want):
    samples = [(MONDAY + 8 * HOUR + i * WEEK, float(v)) for i, v in enumerate(values)]
    assert quantiles_by_hour(samples, q)[8] == want


def test_an_hour_without_data_takes_its_neighbours():
    samples = [(MONDAY + h * HOUR, v) for h, v in [(8, 10.0), (24 + 8, 30.0), (20, 5.0)]]
    found = quantiles_by_hour(samples, 0.9)
    assert found[8] == 10.0
    # the same hour of other days
    assert found[48 + 8] == 30.0
    assert found[24 + 20] == 5.0
    # no day has this one: the nearest before it or after
    assert found[10] == 10.0
    assert found[14] == 10.0
    assert found[16] == 5.0
    assert found[HOURS - 1] == 10.0


@pytest.mark.parametrize("samples", [[], [(MONDAY, math.nan)], [(MONDAY, -1.0)]])
def test_without_any_data_nothing_is_known(samples):
    assert quantiles_by_hour(samples, 0.9) == ()


SAMPLES = st.lists(
    st.tuples(st.integers(0, 4 * HOURS - 1).map(lambda h: MONDAY + h * HOUR), st.floats(0, 1e4)),
    min_size=1,
)


@given(SAMPLES, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_quantiles_are_samples_and_rise_with_q(samples, a, b):
    low, high = (quantiles_by_hour(samples, q) for q in sorted((a, b)))
    assert len(low) == HOURS
    values = {value for _, value in samples}
    assert set(low) <= values
    assert all(x <= y for x, y in zip(low, high, strict=True))


@given(SAMPLES, st.floats(0, 2 * WEEK), st.floats(0, WEEK), st.floats(0, WEEK))
def test_a_longer_horizon_never_forecasts_less(samples, at, a, b):
    table = quantiles_by_hour(samples, 0.9)
    near, far = (forecast(table, MONDAY + at, horizon) for horizon in sorted((a, b)))
    assert 0 <= near <= far * (1 + 1e-9) + 1e-9
