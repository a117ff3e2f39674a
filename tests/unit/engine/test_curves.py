"""Scaling curves: what was measured is honoured within its noise, the rest stays plausible."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.curves import EXPONENT_SD, LOCAL_SD, Curve

#: samples/s of a job whose scaling falls off, measured well
FALLING_OFF = {8: 800.0, 16: 1500.0, 32: 1700.0}
PRECISE = dict.fromkeys(FALLING_OFF, 0.01)


@pytest.mark.parametrize(
    ("measured", "want"),
    [
        ({}, {1: 1.0, 4: 4**0.9, 100: 100**0.9}),
        ({4: 100.0}, {1: 100 * 0.25**0.9, 4: 100.0, 8: 100 * 2**0.9}),
        # no measurements: nothing, less than nothing, too much, sizes that are none
        ({4: 100.0, 8: 0.0, 16: -5.0, 32: math.nan, 64: math.inf, 128: 1e200, 0: 3.0, -2: 3.0},
         {4: 100.0, 8: 100 * 2**0.9}),
        ({1: math.nan}, {8: 8**0.9}),
    ],
)  # fmt: skip
def test_with_at_most_one_measurement_the_default_scales(measured, want):
    curve = Curve.fit(measured)
    assert {n: curve.rate(n) for n in want} == pytest.approx(want)
    assert curve.rate(0) == 0.0


def test_the_usual_exponent_can_be_given():
    assert Curve.fit({}, exponent=0.5).rate(16) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("measured", "deviation"),
    [
        (FALLING_OFF, PRECISE),
        (FALLING_OFF, dict.fromkeys(FALLING_OFF, 0.0)),
        ({1: 10.0, 2: 19.0, 3: 20.0, 4: 38.0}, dict.fromkeys((1, 2, 3, 4), 0.01)),
        # a real fall, and a real superlinear rise
        ({4: 100.0, 8: 60.0}, {4: 0.02, 8: 0.02}),
        ({1: 100.0, 2: 260.0}, {1: 0.02, 2: 0.02}),
    ],
)
def test_what_was_measured_well_is_honoured_within_its_noise(measured, deviation):
    curve = Curve.fit(measured, deviation)
    for n, rate in measured.items():
        assert curve.rate(n) == pytest.approx(rate, rel=max(deviation[n], 0.005))


def test_between_and_beyond_what_was_measured():
    curve = Curve.fit(FALLING_OFF, PRECISE)
    assert curve.rate(16) < curve.rate(24) < curve.rate(32)
    # nobody expects more beyond than the last step brought, nor less below than proportion
    assert 1.0 < curve.rate(64) / curve.rate(32) <= 1700 / 1500 * 1.01
    assert 2**0.9 <= curve.rate(8) / curve.rate(4) <= 2.0


@pytest.mark.parametrize(
    ("measured", "deviation", "low", "high"),
    [
        # a dip that may be noise doesn't make growth look worthless
        ({4: 100.0, 8: 98.0}, None, 1.05, 2.0),
        ({4: 100.0, 8: 92.0}, {4: 0.1, 8: 0.1}, 1.03, 2.0),
        ({4: 100.0, 8: 70.0}, {4: 0.5, 8: 0.5}, 1.2, 2.0),
        # one that isn't does
        ({4: 100.0, 8: 98.0}, {4: 0.001, 8: 0.001}, 0.97, 1.04),
        ({4: 100.0, 8: 60.0}, {4: 0.02, 8: 0.02}, 0.55, 0.65),
        # a point that is too good doesn't make it look marvellous
        ({4: 100.0, 8: 600.0}, None, 1.5, 2.0),
        ({4: 100.0, 8: 600.0}, {4: 0.02, 8: 0.9}, 1.5, 2.0),
        ({4: 100.0, 8: 600.0}, {4: 0.02}, 1.5, 2.0),
        ({4: 100.0, 8: 600.0}, {4: math.nan, 8: -1.0}, 1.5, 2.0),
    ],
)
def test_noise_is_taken_for_noise(measured, deviation, low, high):
    curve = Curve.fit(measured, deviation)
    assert low <= curve.rate(8) / curve.rate(4) <= high + 1e-9


def test_more_and_wider_measurements_move_the_exponent():
    """Each is Amdahl's curve of a tenth serial work, exponent 0.9 expected."""

    def amdahl(*sizes):
        return Curve.fit({n: n / (1 + 0.1 * (n - 1)) for n in sizes}, dict.fromkeys(sizes, 0.05))

    near, wide, many = amdahl(4, 5), amdahl(4, 16), amdahl(4, 8, 16, 32)
    assert 0.9 > near.exponent > wide.exponent > many.exponent > 0.3


@pytest.mark.parametrize("measured", [{}, {8: 100.0}, FALLING_OFF])
def test_uncertainty_grows_with_the_distance(measured):
    curve = Curve.fit(measured, PRECISE)
    last = max(measured, default=1)
    grown = [curve.uncertainty(last * 2**k) for k in range(5)]
    assert all(a < b for a, b in pairwise(grown))
    assert grown[0] <= 0.1
    if len(measured) > 1:
        assert curve.uncertainty(12) > curve.uncertainty(8)
        assert curve.uncertainty(12) > curve.uncertainty(16)


def test_noisier_measurements_leave_more_uncertain():
    loud = Curve.fit(FALLING_OFF, dict.fromkeys(FALLING_OFF, 0.3))
    assert loud.uncertainty(16) > 5 * Curve.fit(FALLING_OFF, PRECISE).uncertainty(16)


SIZES = st.integers(1, 512)
ANYTHING = st.dictionaries(
    st.integers(-2, 5000), st.floats(allow_nan=True, allow_infinity=True), max_size=8
)


@given(ANYTHING, ANYTHING, SIZES)
def test_any_input_gives_a_finite_curve(measured, deviation, n):
    curve = Curve.fit(measured, deviation)
    assert 0 < curve.rate(n) < math.inf
    assert 0 <= curve.uncertainty(n) < math.inf


@given(
    st.dictionaries(SIZES, st.floats(1e-3, 1e6), max_size=6),
    st.lists(SIZES, min_size=2, max_size=2, unique=True),
)
def test_without_known_deviation_more_replicas_bring_more_but_not_out_of_proportion(measured, pair):
    curve = Curve.fit(measured)
    low, high = sorted(pair)
    gain = curve.rate(high) / curve.rate(low)
    assert 1.0 < gain <= high / low * (1 + 1e-9)


@given(
    st.floats(0.3, 1.0),
    st.dictionaries(SIZES, st.floats(-0.03, 0.03), min_size=1, max_size=6),
)
def test_a_power_law_is_found_again(exponent, errors):
    """Measured with up to 3 % of noise, the curve is within as much of the truth and a little."""
    measured = {n: 50 * n**exponent * math.exp(error) for n, error in errors.items()}
    curve = Curve.fit(measured, dict.fromkeys(measured, 0.01))
    for n in measured:
        assert curve.rate(n) == pytest.approx(50 * n**exponent, rel=0.06)
    backwards = dict(reversed(measured.items()))
    assert Curve.fit(backwards, dict.fromkeys(measured, 0.01)) == curve


@given(st.dictionaries(SIZES, st.floats(0.1, 1e4), min_size=1, max_size=5), st.floats(0.5, 100.0))
def test_the_unit_of_throughput_doesn_t_matter(measured, unit):
    plain = Curve.fit(measured)
    scaled = Curve.fit({n: rate * unit for n, rate in measured.items()})
    for n in (1, 7, 64, 512):
        assert scaled.rate(n) == pytest.approx(plain.rate(n) * unit, rel=1e-4)
        assert scaled.uncertainty(n) == pytest.approx(plain.uncertainty(n), rel=1e-4)


def test_the_fit_is_the_posterior_of_the_model():
    """Beside the filter: the same by matrices (Rasmussen and Williams, eq. 2.25 f)."""
    sizes, rates, noise = [2, 3, 8, 32], [19.0, 28.0, 66.0, 180.0], [0.05, 0.02, 0.1, 0.03]
    x = np.log(sizes)
    along = x - x[0]
    prior = LOCAL_SD**2 * np.minimum.outer(along, along) + EXPONENT_SD**2 * np.outer(along, along)
    prior += 1e4  # the level is as good as unknown
    total = prior + np.diag(np.square(noise))
    residual = np.log(rates) - 0.9 * x
    mean = prior @ np.linalg.solve(total, residual - residual.mean()) + residual.mean() + 0.9 * x
    spread = np.sqrt(np.diag(prior - prior @ np.linalg.solve(total, prior)))
    slope = 0.9 + EXPONENT_SD**2 * along @ np.linalg.solve(total, residual - residual.mean())
    curve = Curve.fit(dict(zip(sizes, rates, strict=True)), dict(zip(sizes, noise, strict=True)))
    assert curve.exponent == pytest.approx(slope, abs=1e-5)
    assert [curve.uncertainty(n) for n in sizes] == pytest.approx(spread, rel=1e-3)
    assert [curve.rate(n) for n in sizes] == pytest.approx(np.exp(mean), rel=1e-4)


def test_many_sizes():
    curve = Curve.fit({n: float(n) for n in range(1, 2000)})
    assert len(curve.sizes) == 1999
    assert curve.rate(1999) == pytest.approx(1999.0, rel=0.1)
