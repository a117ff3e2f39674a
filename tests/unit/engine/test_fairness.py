"""Shares by weight: Kueue's dominant share, and max-min in whole units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.fairness import Group, Part, split, split_groups, weighted_share

GPU = "nvidia.com/gpu"
NEURON = "aws.amazon.com/neuron"


@pytest.mark.parametrize(
    ("case", "borrowed", "weight", "want"),
    [
        ("borrows nothing", {}, 1.0, (0.0, "")),
        ("a part", {GPU: 5}, 1.0, (250.0, GPU)),
        ("by weight", {GPU: 5}, 2.0, (125.0, GPU)),
        ("the larger one", {GPU: 5, NEURON: 4}, 1.0, (400.0, NEURON)),
        ("equal: the first by name", {GPU: 10, NEURON: 5}, 1.0, (500.0, NEURON)),
        ("what can't be lent has no share", {"amd.com/gpu": 5}, 1.0, (0.0, "")),
    ],
)
def test_weighted_share(case, borrowed, weight, want):
    assert weighted_share(borrowed, {GPU: 20, NEURON: 10}, weight) == want, case


@pytest.mark.parametrize(
    ("case", "units", "parts", "want"),
    [
        ("nobody", 5, {}, {}),
        ("equal", 6, {"a": Part(), "b": Part(), "c": Part()}, {"a": 2, "b": 2, "c": 2}),
        ("a rest goes by name", 8, {"b": Part(), "c": Part(), "a": Part()},
         {"a": 3, "b": 3, "c": 2}),
        ("by weight", 12, {"a": Part(1.0), "b": Part(2.0), "c": Part(3.0)},
         {"a": 2, "b": 4, "c": 6}),
        ("rounded to the nearest", 10, {"a": Part(1.0), "b": Part(2.0)}, {"a": 3, "b": 7}),
        ("a ceiling leaves to the others", 12, {"a": Part(ceiling=2), "b": Part(), "c": Part()},
         {"a": 2, "b": 5, "c": 5}),
        ("more than all can use", 12, {"a": Part(ceiling=2), "b": Part(ceiling=3)},
         {"a": 2, "b": 3}),
        ("a floor counts in its share", 12, {"a": Part(floor=2), "b": Part()}, {"a": 6, "b": 6}),
        ("a floor above its share", 12, {"a": Part(floor=8), "b": Part(), "c": Part()},
         {"a": 8, "b": 2, "c": 2}),
        ("too few for the floors", 6, {"a": Part(floor=8), "b": Part(floor=2), "c": Part()},
         {"a": 4, "b": 2, "c": 0}),
        ("too few, by weight", 6, {"a": Part(2.0, 8), "b": Part(1.0, 8)}, {"a": 4, "b": 2}),
        ("nothing to share", 0, {"a": Part(), "b": Part(ceiling=0)}, {"a": 0, "b": 0}),
        ("weights far apart", 10, {"a": Part(1e-300), "b": Part(1e300)}, {"a": 0, "b": 10}),
        ("far apart, but room", 10, {"a": Part(1e-300), "b": Part(1e300, 0, 4)},
         {"a": 6, "b": 4}),
    ],
)  # fmt: skip
def test_split(case, units, parts, want):
    assert split(units, parts) == want, case


@pytest.mark.parametrize(
    ("units", "part", "want"),
    [
        (-1, Part(), "units is -1"),
        (1, Part(0.0), "weight of a is 0.0"),
        (1, Part(float("nan")), "weight of a is nan"),
        (1, Part(floor=-1), "floor of a is -1"),
        (1, Part(floor=3, ceiling=2), "ceiling of a is 2: give at least its floor"),
    ],
)
def test_split_refuses(units, part, want):
    with pytest.raises(ValueError, match=want):
        split(units, {"a": part})


def test_split_groups_shares_among_queues_then_teams_then_jobs():
    """One team with ten jobs gets no more than one with a single job."""
    parts = {
        "research": Group(
            {
                "vision": Group({f"job-{i}": Part() for i in range(10)}),
                "speech": Group({"job": Part()}),
            },
            weight=2.0,
        ),
        "product": Group({"job": Part(ceiling=10)}),
    }
    found = split_groups(60, parts)
    assert found["research", "speech", "job"] == 25
    assert sum(n for path, n in found.items() if path[1] == "vision") == 25
    assert found["product", "job"] == 10
    assert {found["research", "vision", f"job-{i}"] for i in range(10)} == {2, 3}


def test_a_group_has_the_floors_and_ceilings_of_its_parts():
    parts = {
        "a": Group({"x": Part(floor=4), "y": Part(floor=3)}),
        "b": Group({"x": Part(ceiling=5), "y": Part(ceiling=9)}, ceiling=6),
        "c": Part(),
    }
    want = {("a", "x"): 4, ("a", "y"): 3, ("b", "x"): 1, ("b", "y"): 1, ("c",): 1}
    assert split_groups(10, parts) == want
    assert sum(split_groups(100, parts)[path] for path in [("b", "x"), ("b", "y")]) == 6


# -- invariants ------------------------------------------------------------------------------


@st.composite
def a_part(draw) -> Part:
    floor = draw(st.integers(0, 6))
    ceiling = draw(st.none() | st.integers(floor, 20))
    weight = draw(st.sampled_from([0.1, 1 / 3, 0.5, 1.0, 2.0, 3.0]) | st.floats(0.01, 100))
    return Part(weight, floor, ceiling)


PARTS = st.dictionaries(st.sampled_from("abcdefgh"), a_part(), min_size=1)


@given(st.integers(0, 150), PARTS)
def test_all_is_given_and_bounds_hold(units, parts):
    found = split(units, parts)
    ceilings = [part.ceiling for part in parts.values()]
    most = units if None in ceilings else min(units, sum(ceilings))
    assert sum(found.values()) == most
    floors_fit = units >= sum(part.floor for part in parts.values())
    for name, part in parts.items():
        assert part.ceiling is None or found[name] <= part.ceiling
        assert found[name] >= part.floor if floors_fit else found[name] <= part.floor


@given(st.integers(0, 150), PARTS)
def test_more_units_lower_nobody(units, parts):
    before, after = split(units, parts), split(units + 1, parts)
    assert all(after[name] >= before[name] for name in parts)


@given(st.integers(0, 150), PARTS)
def test_order_of_parts_makes_no_difference(units, parts):
    assert split(units, dict(reversed(parts.items()))) == split(units, parts)


@given(st.integers(0, 150), PARTS)
def test_it_is_dealt_one_by_one(units, parts):
    """The fast way gives what the plain one gives: each unit to whom it lifts least far."""
    floors_fit = units >= sum(part.floor for part in parts.values())
    heaviest = max(part.weight for part in parts.values())
    found = {name: part.floor if floors_fit else 0 for name, part in parts.items()}
    for _ in range(units - sum(found.values())):
        open_ = [
            ((found[name] + 0.5) / (part.weight / heaviest), name)
            for name, part in parts.items()
            if found[name] < (part.floor if not floors_fit else part.ceiling or 10**9)
            and part.ceiling != 0
        ]
        if open_:
            found[min(open_)[1]] += 1
    assert split(units, parts) == found


@given(st.integers(0, 150), PARTS, PARTS)
def test_groups_share_all_and_lower_nobody(units, first, second):
    parts = {"x": Group(first, 2.0), "y": Group(second)}
    before, after = split_groups(units, parts), split_groups(units + 1, parts)
    assert sum(before.values()) <= units
    assert all(after[path] >= before[path] for path in before)


def test_large_clusters_are_shared_exactly():
    parts = {f"q{i:03}": Part(1.0 + i % 7) for i in range(200)}
    found = split(1_000_000, parts)
    assert sum(found.values()) == 1_000_000
    # 1,259.45 by weight; of those whose next unit is due at 1,259.5 the first by name get one
    assert (found["q000"], found["q006"]) == (1260, 8817)
    assert (found["q196"], found["q195"]) == (1259, 8816)
