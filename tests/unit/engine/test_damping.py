"""What keeps a cluster calm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.damping import (
    back_off,
    bind_back_off,
    bind_check_at,
    budget_free_at,
    flaps,
    next_demand_history,
    resize_cost,
)
from controlplane.engine.snapshot import DemandHistory, History, Move
from tests.builders import NOW


def moves(*steps):
    """(seconds ago, before, after), as a History."""
    return History(moves=tuple(Move(NOW - ago, before, after) for ago, before, after in steps))


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ((), []),
        (((50, 4, 8),), []),
        (((50, 4, 8), (20, 8, 4)), [(0, 1)]),
        (((50, 8, 4), (20, 4, 8)), [(0, 1)]),
        # beyond where it was; not quite back; further the same way
        (((50, 4, 8), (20, 8, 2)), [(0, 1)]),
        (((50, 4, 8), (20, 8, 6)), []),
        (((50, 4, 8), (20, 8, 16)), []),
        # back after the cooldown is no flap
        (((80, 4, 8), (20, 8, 4)), []),
        (((79, 4, 8), (20, 8, 4)), [(0, 1)]),
        # undone in two steps, and two undone in one
        (((50, 4, 8), (40, 8, 6), (30, 6, 4)), [(0, 2)]),
        (((50, 4, 6), (40, 6, 8), (30, 8, 4)), [(0, 2), (1, 2)]),
        # to and fro: each undoes the one before it
        (((50, 4, 8), (40, 8, 4), (30, 4, 8)), [(0, 1), (1, 2)]),
        (((50, 4, 4), (40, 4, 4)), []),
    ],
)
def test_flaps(steps, want):
    history = moves(*steps)
    assert flaps(history, 60.0) == tuple((history.moves[a], history.moves[b]) for a, b in want)


def test_without_cooldown_nothing_flaps():
    assert flaps(moves((50, 4, 8), (50, 8, 4)), 0.0) == ()


@pytest.mark.parametrize(
    ("ago", "want"),
    [
        ((), None),
        ((0,), 60), ((59,), 1), ((60,), None),
        ((500, 100), 20), ((500, 120), None),
        ((900, 500, 100), 140),
        ((9, 8, 7, 6, 5, 4, 0), 3600), (tuple(range(10_000, -1, -1)), 3600),
    ],
)  # fmt: skip
def test_back_off_doubles(ago, want):
    until = back_off(tuple(NOW - s for s in ago), NOW)
    assert until == (None if want is None else NOW + want)


@pytest.mark.parametrize(
    ("ago", "budget", "want"),
    [
        ((30, 20, 10), None, 0), ((), 0, None), ((), 1, 0),
        ((30, 20, 10), 4, 0), ((30, 20, 10), 3, 3570), ((30, 20, 10), 2, 3580),
        ((30, 20, 10), 1, 3590), ((30,), 0, None),
        # older than an hour doesn't count
        ((3600, 20, 10), 3, 0), ((3599, 20, 10), 3, 1),
    ],
)  # fmt: skip
def test_budget_free_at(ago, budget, want):
    found = budget_free_at(tuple(NOW - s for s in ago), budget, NOW)
    assert found == (None if want is None else NOW + want)


@pytest.mark.parametrize(
    ("arguments", "want"), [((30.0, 4, 8), 960.0), ((0.0, 4, 8), 0.0), ((-1.0, 4, 8), 0.0)]
)
def test_resize_cost(arguments, want):
    assert resize_cost(*arguments) == want


POLICY = ClusterPolicy(bind_timeout_s=60.0)


@pytest.mark.parametrize(
    ("history", "want"),
    [
        (DemandHistory(), None),
        (DemandHistory(fits_since=NOW - 59), None),
        # due now: the first wait is as long as the time-out
        (DemandHistory(fits_since=NOW - 60), 60),
        (DemandHistory(fits_since=NOW - 60, refusals=1, refused_at=NOW - 120), 120),
        (DemandHistory(refusals=1, refused_at=NOW - 59), 1),
        (DemandHistory(refusals=1, refused_at=NOW - 60), None),
        (DemandHistory(refusals=3, refused_at=NOW), 240),
        (DemandHistory(refusals=1000, refused_at=NOW), 3600),
    ],
)
def test_bind_back_off(history, want):
    assert bind_back_off(history, POLICY, NOW) == (None if want is None else NOW + want)


@pytest.mark.parametrize(
    ("previous", "fits", "want"),
    [
        (DemandHistory(), False, DemandHistory()),
        (DemandHistory(), True, DemandHistory(fits_since=NOW)),
        (DemandHistory(NOW - 30), True, DemandHistory(NOW - 30)),
        (DemandHistory(NOW - 30), False, DemandHistory()),
        (DemandHistory(NOW - 60), False, DemandHistory(None, 1, NOW)),
        # refusals are kept while it is tried again
        (DemandHistory(None, 1, NOW - 60), True, DemandHistory(NOW, 1, NOW - 60)),
        (DemandHistory(NOW - 60, 1, NOW - 120), False, DemandHistory(None, 2, NOW)),
        (DemandHistory(None, 2, NOW - 10), False, DemandHistory(None, 2, NOW - 10)),
    ],
)
def test_next_demand_history(previous, fits, want):
    assert next_demand_history(previous, fits, NOW, POLICY) == want


@pytest.mark.parametrize(
    ("history", "want"),
    [
        (DemandHistory(), None),
        (DemandHistory(fits_since=NOW - 20), 40),
        (DemandHistory(fits_since=NOW - 90), 0),
        (DemandHistory(refusals=2, refused_at=NOW - 20), 100),
        (DemandHistory(refusals=2, refused_at=NOW - 120), None),
    ],
)
def test_bind_check_at(history, want):
    assert bind_check_at(history, POLICY, NOW) == (None if want is None else NOW + want)


def test_a_pod_that_is_never_bound_gets_its_place_ever_more_rarely():
    """KAI-Scheduler 2075: it won every cycle."""
    history, held = DemandHistory(), []
    for second in range(0, 7200, 10):
        fits = bind_back_off(history, POLICY, NOW + second) is None
        history = next_demand_history(history, fits, NOW + second, POLICY)
        held.append(fits)
    begins = [i * 10 for i, fits in enumerate(held) if fits and not (i and held[i - 1])]
    # a minute of trying, then 1, 2, 4, … minutes for the others
    assert begins == [0, 120, 300, 600, 1140, 2160, 4140]
    assert sum(held) * 10 == 60 * len(begins)


@given(st.lists(st.floats(0, 7200), max_size=12), st.integers(0, 5))
def test_the_budget_is_never_exceeded_and_frees_when_it_says(ago, budget):
    resizes = tuple(sorted(NOW - s for s in ago))
    free = budget_free_at(resizes, budget, NOW)
    if free is None:
        assert budget == 0
        return
    within = [at for at in resizes if free - at < 3600.0]
    assert len(within) < budget
    assert free == NOW or len([at for at in resizes if NOW - at < 3600.0]) >= budget
