"""Shares by objective: exact outcomes, and what holds for any claims."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.engine.objectives import Claim, share
from controlplane.engine.types import Objective

FAIR, TIME, SUM = Objective.FAIR_SHARE, Objective.COMPLETION_TIME, Objective.THROUGHPUT


def linear(n: int) -> float:
    return float(n)


def root(n: int) -> float:
    return float(n) ** 0.5


def capped(n: int) -> float:
    """No faster beyond four replicas."""
    return float(min(n, 4))


def claim(key: str, **changes: object) -> Claim:
    base = Claim(
        key=key,
        sizes=tuple(range(1, 17)),
        held=0,
        per_replica=1,
        weight=1.0,
        rate=linear,
        remaining=3600.0,
        attained=0.0,
        pause_s=30.0,
    )
    return replace(base, **changes)


CASES = [
    ("nobody", FAIR, 8, [], {}),
    ("equal", FAIR, 8, [claim("a"), claim("b")], {"a": 4, "b": 4}),
    ("a rest goes by key", FAIR, 9, [claim("b"), claim("a")], {"a": 5, "b": 4}),
    ("by weight", FAIR, 9, [claim("a"), claim("b", weight=2.0)], {"a": 3, "b": 6}),
    (
        "a ceiling leaves to the others",
        FAIR,
        12,
        [claim("a", sizes=(1, 2)), claim("b")],
        {"a": 2, "b": 10},
    ),
    (
        "by accelerators, not replicas",
        FAIR,
        12,
        [claim("a", per_replica=2), claim("b")],
        {"a": 3, "b": 6},
    ),
    (
        "nothing below the minimum",
        FAIR,
        3,
        [claim("a", sizes=(4, 8)), claim("b")],
        {"a": 0, "b": 3},
    ),
    (
        "frozen keeps what it holds",
        FAIR,
        8,
        [claim("a", held=7, frozen=True), claim("b")],
        {"a": 7, "b": 1},
    ),
    (
        "whoever runs keeps its floor",
        FAIR,
        1,
        [claim("a"), claim("b", held=3, floor=1)],
        {"a": 0, "b": 1},
    ),
    # twice as long: weight 1 against 2, so all goes to the short one while it scales
    (
        "shortest first when linear",
        TIME,
        16,
        [claim("a", remaining=7200.0), claim("b")],
        {"a": 0, "b": 16},
    ),
    (
        "the long one keeps its floor",
        TIME,
        16,
        [claim("a", remaining=72e3, held=8, floor=1), claim("b", held=8, floor=1, remaining=36e3)],
        {"a": 1, "b": 15},
    ),
    (
        "what the short one can't use goes on",
        TIME,
        16,
        [claim("a", remaining=7200.0), claim("b", rate=capped)],
        {"a": 12, "b": 4},
    ),
    # slopes 2 (sqrt(n+1) - sqrt(n)) against 1 (sqrt(m+1) - sqrt(m)): heSRPT's 3/4 and 1/4
    (
        "heSRPT of square roots",
        TIME,
        16,
        [claim("a", remaining=7200.0, rate=root), claim("b", rate=root)],
        {"a": 3, "b": 13},
    ),
    (
        "unknown: less service is served first",
        TIME,
        16,
        [claim("a", remaining=None, attained=1e6), claim("b", remaining=None)],
        {"a": 1, "b": 15},
    ),
    (
        "unknown and alike: alike",
        TIME,
        16,
        [claim("a", remaining=None), claim("b", remaining=None)],
        {"a": 8, "b": 8},
    ),
    (
        "nearly done: not worth a pause",
        TIME,
        16,
        [
            claim("a", held=15, floor=1, remaining=600.0),
            claim("b", held=1, floor=1, remaining=30.0),
        ],
        {"a": 15, "b": 1},
    ),
    (
        "too small a gain for two pauses",
        TIME,
        16,
        [
            claim("a", held=8, rate=root),
            claim("b", held=8, rate=root, remaining=3700.0, pause_s=900.0),
        ],
        {"a": 8, "b": 8},
    ),
    (
        "fewer accelerators: the change is forced",
        TIME,
        8,
        [claim("a", held=8, floor=1, remaining=7200.0), claim("b", held=8, floor=1)],
        {"a": 1, "b": 7},
    ),
    (
        "the better scaling gets more",
        SUM,
        16,
        [claim("a", rate=capped), claim("b")],
        {"a": 4, "b": 12},
    ),
    (
        "who doesn't get faster gets its minimum",
        SUM,
        16,
        [claim("a", rate=lambda n: 1.0), claim("b")],
        {"a": 1, "b": 15},
    ),
]


@pytest.mark.parametrize(
    ("objective", "units", "claims", "want"),
    [pytest.param(*rest, id=name) for name, *rest in CASES],
)
def test_shares(objective, units, claims, want):
    assert share(claims, units, objective) == want


def test_a_longer_horizon_pays_for_a_change_that_a_short_one_does_not():
    claims = [
        claim("a", held=8, floor=1, rate=root, remaining=72e5),
        claim("b", held=8, floor=1, rate=root, remaining=36e5),
    ]
    assert share(claims, 16, TIME, horizon_s=60.0) == {"a": 8, "b": 8}
    assert share(claims, 16, TIME, horizon_s=6000.0) == {"a": 3, "b": 13}


@st.composite
def some_claims(draw: st.DrawFn, *, running: bool = True) -> list[Claim]:
    claims = []
    for number in range(draw(st.integers(1, 7))):
        low = draw(st.integers(1, 4))
        sizes = tuple(range(low, low + draw(st.integers(1, 20)), draw(st.integers(1, 3))))
        held = draw(st.sampled_from((0, *sizes))) if running else 0
        power = draw(st.sampled_from((0.3, 0.7, 1.0)))
        claims.append(
            Claim(
                key=f"job-{number}",
                sizes=sizes,
                held=held,
                per_replica=draw(st.sampled_from((1, 1, 2, 8))),
                weight=draw(st.sampled_from((0.5, 1.0, 3.0))),
                rate=lambda n, power=power: float(n) ** power,
                remaining=draw(st.none() | st.floats(0, 1e6)),
                attained=draw(st.floats(0, 1e6)),
                pause_s=draw(st.sampled_from((0.0, 30.0, 300.0))),
                floor=min(held, draw(st.sampled_from((0, low)))),
                frozen=held > 0 and draw(st.integers(0, 4)) == 0,
            )
        )
    return claims


def used(claims: list[Claim], sizes: dict[str, int]) -> int:
    return sum(sizes[claim.key] * claim.per_replica for claim in claims)


def held(claims: list[Claim]) -> int:
    return sum(claim.held * claim.per_replica for claim in claims)


@settings(max_examples=150, deadline=None)
@given(some_claims(), st.integers(0, 60), st.sampled_from(Objective))
def test_valid_sizes_that_fit(claims, more, objective):
    units = held(claims) + more
    sizes = share(claims, units, objective)
    assert used(claims, sizes) <= units
    for each in claims:
        assert sizes[each.key] in (0, *each.sizes)
        if each.frozen:
            assert sizes[each.key] == each.held
        assert sizes[each.key] >= each.floor
    assert share(list(reversed(claims)), units, objective) == sizes


@settings(max_examples=150, deadline=None)
@given(some_claims(), st.integers(-20, 60), st.sampled_from(Objective))
def test_an_outcome_is_kept(claims, more, objective):
    units = max(0, held(claims) + more)
    sizes = share(claims, units, objective)
    again = [replace(each, held=sizes[each.key]) for each in claims]
    assert share(again, units, objective) == sizes


@settings(max_examples=150, deadline=None)
@given(some_claims(), st.integers(0, 60), st.integers(1, 20))
def test_more_accelerators_shrink_nobody_under_fair_share(claims, more, extra):
    """Unless they start somebody."""
    units = held(claims) + more
    before, after = share(claims, units, FAIR), share(claims, units + extra, FAIR)
    if all(before[key] for key, size in after.items() if size):
        assert all(after[key] >= size for key, size in before.items())


@settings(max_examples=60, deadline=None)
@given(some_claims(running=False), st.integers(0, 80), st.sampled_from((TIME, SUM)))
def test_nothing_useful_is_left_over(claims, units, objective):
    """Accelerators that stay free are too few for any claim's next size."""
    sizes = share(claims, units, objective)
    left = units - used(claims, sizes)
    for each in claims:
        larger = [size for size in each.sizes if size > sizes[each.key]]
        assert not larger or (larger[0] - sizes[each.key]) * each.per_replica > left
