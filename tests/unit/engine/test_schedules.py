"""Windows of time: which holds when, on every day of the year, and what a window may say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.policy import valid_sizes, validate
from controlplane.engine.schedules import DAYS, bounds_at, next_change, validate_schedule
from tests.builders import make_policy

NIGHTS = {
    "name": "nights",
    "from": "20:00",
    "until": "06:00",
    "timezone": "UTC",
    "max_replicas": 16,
}


def window(**fields):
    return {**NIGHTS, **fields}


def scheduled(*windows, **fields):
    return make_policy(schedule=windows, **fields)


def at(text):
    """Unix seconds of an ISO time; without an offset it is UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def changes(policy, start, count):
    """The next instants at which bounds change, with the window that holds from each on."""
    found, now = [], at(start)
    for _ in range(count):
        now = next_change(policy, now)
        if now is None:
            break
        moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M")
        found.append((moment, bounds_at(policy, now)[0]))
    return found


@pytest.mark.parametrize(
    ("windows", "now", "want"),
    [
        ((NIGHTS,), "2026-03-02T19:59:59", None),
        ((NIGHTS,), "2026-03-02T20:00:00", "nights"),
        ((NIGHTS,), "2026-03-03T05:59:59", "nights"),
        ((NIGHTS,), "2026-03-03T06:00:00", None),
        # the night of a Friday reaches into the Saturday; that of a Thursday isn't one of them
        ((window(days=["fri"]),), "2026-03-07T05:00", "nights"),
        ((window(days=["fri"]),), "2026-03-06T05:00", None),
        ((window(days=["fri"]),), "2026-03-07T21:00", None),
        ((window(**{"from": "00:00", "until": "24:00", "days": ["sun"]}),), "2026-03-08T00:00",
         "nights"),
        ((window(**{"from": "00:00", "until": "24:00", "days": ["sun"]}),), "2026-03-09T00:00",
         None),
        # the first of two that overlap
        ((NIGHTS, window(name="late", **{"from": "22:00"})), "2026-03-02T23:00", "nights"),
        ((window(name="late", **{"from": "22:00"}), NIGHTS), "2026-03-02T23:00", "late"),
        ((window(name="late", **{"from": "22:00"}), NIGHTS), "2026-03-02T21:00", "nights"),
        # 20:00 on the clocks of the zone
        ((window(timezone="Europe/Berlin"),), "2026-01-05T18:59", None),
        ((window(timezone="Europe/Berlin"),), "2026-01-05T19:00", "nights"),
        ((window(timezone="Europe/Berlin"),), "2026-07-06T18:00", "nights"),
        ((window(timezone="America/New_York"),), "2026-01-06T00:59", None),
        ((window(timezone="America/New_York"),), "2026-01-06T01:00", "nights"),
        # the zones that are furthest from UTC, either way
        ((window(timezone="Pacific/Kiritimati", days=["mon"]),), "2026-03-02T06:00", "nights"),
        ((window(timezone="Pacific/Kiritimati", days=["mon"]),), "2026-03-02T16:00", None),
        ((window(timezone="Etc/GMT+12", days=["mon"]),), "2026-03-03T08:00", "nights"),
        ((window(timezone="Etc/GMT+12", days=["mon"]),), "2026-03-03T18:00", None),
    ],
)  # fmt: skip
def test_the_window_that_holds(windows, now, want):
    name, policy = bounds_at(scheduled(*windows), at(now))
    assert name == want
    assert policy.max_replicas == (16 if want else 8)
    assert policy.schedule == windows


EARLY = {"from": "02:30", "until": "04:00"}


@pytest.mark.parametrize(
    ("zone", "fields", "start", "want"),
    [
        # Berlin, 29 March 2026: 02:00 becomes 03:00 at 01:00 UTC. A night is an hour shorter
        ("Europe/Berlin", {}, "2026-03-28T12:00",
         [("2026-03-28T19:00", "w"), ("2026-03-29T04:00", None), ("2026-03-29T18:00", "w")]),
        # begins in the skipped hour: with the jump
        ("Europe/Berlin", EARLY, "2026-03-28T12:00",
         [("2026-03-29T01:00", "w"), ("2026-03-29T02:00", None), ("2026-03-30T00:30", "w")]),
        # lies within it: not on that day
        ("Europe/Berlin", {"from": "02:10", "until": "02:50"}, "2026-03-28T12:00",
         [("2026-03-30T00:10", "w"), ("2026-03-30T00:50", None)]),
        # once a week, and that week it is skipped
        ("Europe/Berlin", {"from": "02:10", "until": "02:50", "days": ["sun"]}, "2026-03-22T12:00",
         [("2026-04-05T00:10", "w"), ("2026-04-05T00:50", None)]),
        # Berlin, 25 October 2026: 03:00 becomes 02:00 at 01:00 UTC; the first 02:30 is 00:30 UTC
        ("Europe/Berlin", EARLY, "2026-10-24T12:00",
         [("2026-10-25T00:30", "w"), ("2026-10-25T03:00", None)]),
        ("Europe/Berlin", {"from": "01:00", "until": "02:30"}, "2026-10-24T12:00",
         [("2026-10-24T23:00", "w"), ("2026-10-25T00:30", None), ("2026-10-26T00:00", "w")]),
        # New York, 8 March and 1 November 2026
        ("America/New_York", EARLY, "2026-03-08T00:00",
         [("2026-03-08T07:00", "w"), ("2026-03-08T08:00", None)]),
        ("America/New_York", {"from": "01:30", "until": "03:00"}, "2026-11-01T00:00",
         [("2026-11-01T05:30", "w"), ("2026-11-01T08:00", None)]),
        # Lord Howe moves by half an hour: 4 October 2026, 02:00 becomes 02:30 at 15:30 UTC
        ("Australia/Lord_Howe", {"from": "02:15", "until": "04:00"}, "2026-10-03T12:00",
         [("2026-10-03T15:30", "w"), ("2026-10-03T17:00", None)]),
        # and 5 April 2026, 02:00 becomes 01:30 at 15:00 UTC; the first 01:45 is 14:45 UTC
        ("Australia/Lord_Howe", {"from": "01:45", "until": "02:15"}, "2026-04-04T12:00",
         [("2026-04-04T14:45", "w"), ("2026-04-04T15:45", None)]),
        # Apia left 30 December 2011 out: what began on it begins at the end of the 29th
        ("Pacific/Apia", {"days": ["fri"]}, "2011-12-29T00:00",
         [("2011-12-30T10:00", "w"), ("2011-12-30T16:00", None)]),
        ("UTC", EARLY, "2026-03-28T12:00",
         [("2026-03-29T02:30", "w"), ("2026-03-29T04:00", None), ("2026-03-30T02:30", "w")]),
    ],
)  # fmt: skip
def test_days_on_which_clocks_change(zone, fields, start, want):
    policy = scheduled(window(name="w", timezone=zone, **fields))
    assert changes(policy, start, len(want)) == want


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("clock", ["01:45", "02:00", "02:15", "02:30", "03:00"])
def test_windows_that_adjoin_leave_no_gap(zone, clock):
    policy = scheduled(
        window(name="before", timezone=zone, **{"from": "00:00", "until": clock}),
        window(name="after", timezone=zone, **{"from": clock, "until": "24:00"}),
    )
    names = [name for _, name in changes(policy, "2026-01-01", 720)]
    assert names == ["before", "after"] * 360 or names == ["after", "before"] * 360


@pytest.mark.parametrize(
    ("windows", "want"),
    [
        ((), None),
        ((window(**{"from": "00:00", "until": "24:00"}),), None),
        # one that another hides never begins
        ((window(**{"from": "00:00", "until": "24:00"}), window(name="hidden")), None),
        # a change of the window counts, though the bounds are the same
        ((NIGHTS, window(name="dawn", **{"from": "06:00", "until": "07:00"})),
         "2026-03-03T06:00"),
        ((NIGHTS,), "2026-03-03T06:00"),
    ],
)  # fmt: skip
def test_next_change(windows, want):
    found = next_change(scheduled(*windows), at("2026-03-03T00:00"))
    assert found == (at(want) if want else None)


@pytest.mark.parametrize(
    ("own", "bounds", "want"),
    [
        ({}, {"max_replicas": 4}, (1, 2, 3, 4)),
        ({}, {"min_replicas": 6}, (6, 7, 8)),
        ({}, {"min_replicas": 10, "max_replicas": 12}, (10, 11, 12)),
        ({"min_replicas": 4, "replica_increment_step": 4}, {"max_replicas": 18}, (4, 8, 12, 16)),
        ({"min_replicas": 4, "replica_increment_step": 4}, {"min_replicas": 5}, (8,)),
        ({"min_replicas": 6, "replica_increment_step": 4}, {"min_replicas": 1, "max_replicas": 10},
         (2, 6, 10)),
        ({"replica_discrete_values": (1, 2, 8)}, {"max_replicas": 5}, (1, 2)),
        ({"replica_discrete_values": (1, 2, 8)}, {"min_replicas": 2}, (2, 8)),
        ({"replica_discrete_values": (1, 2, 8)}, {"min_replicas": 3}, (8,)),
    ],
)  # fmt: skip
def test_sizes_stay_on_the_grid_of_the_policy(own, bounds, want):
    bounds = {"max_replicas": None, **bounds}
    policy = scheduled(window(**bounds), **own)
    assert validate(policy) == []
    name, found = bounds_at(policy, at("2026-03-02T23:00"))
    assert name == "nights"
    assert valid_sizes(found) == want
    assert validate(replace(found, schedule=())) == []
    # asked again, it says the same
    assert bounds_at(found, at("2026-03-02T23:00")) == (name, found)
    assert next_change(found, at("2026-03-02T23:00")) == at("2026-03-03T06:00")


@pytest.mark.parametrize(
    ("windows", "want"),
    [
        ((NIGHTS,), []),
        ((window(days=list(DAYS)),), []),
        ((window(days=("sat",)),), []),
        (("nights",), ["schedule[0]"]),
        ((NIGHTS, window(name="")), ["schedule[1].name"]),
        ((NIGHTS, NIGHTS), ["schedule[1].name"]),
        ((window(name="n" * 64),), ["schedule[0].name"]),
        ((window(weekdays=["mon"]),), ["schedule[0].weekdays"]),
        ((window(days=["monday"]),), ["schedule[0].days"]),
        ((window(days=[]),), ["schedule[0].days"]),
        ((window(days="mon"),), ["schedule[0].days"]),
        ((window(days=[{}]),), ["schedule[0].days"]),
        ((window(**{"from": "24:00"}),), ["schedule[0].from"]),
        ((window(**{"from": "8:00"}),), ["schedule[0].from"]),
        ((window(until=" 06:00"),), ["schedule[0].until"]),
        ((window(until="06:00\n"),), ["schedule[0].until"]),
        ((window(until="06:60"),), ["schedule[0].until"]),
        ((window(until=6),), ["schedule[0].until"]),
        ((window(until="20:00"),), ["schedule[0].until"]),
        ((window(timezone="Europe/Bielefeld"),), ["schedule[0].timezone"]),
        ((window(timezone="Europe"),), ["schedule[0].timezone"]),
        ((window(timezone="../../etc/passwd"),), ["schedule[0].timezone"]),
        ((window(timezone="\x00"),), ["schedule[0].timezone"]),
        ((window(timezone=None),), ["schedule[0].timezone"]),
        ((window(max_replicas=None),), ["schedule[0].min_replicas"]),
        ((window(max_replicas=0),), ["schedule[0].max_replicas"]),
        ((window(max_replicas=True),), ["schedule[0].max_replicas"]),
        ((window(max_replicas=100_001),), ["schedule[0].max_replicas"]),
        ((window(min_replicas="4"),), ["schedule[0].min_replicas"]),
        ((window(min_replicas=6, max_replicas=5),), ["schedule[0].max_replicas"]),
        # beyond the policy's own maximum of 8, which holds
        ((window(min_replicas=9, max_replicas=None),), ["schedule[0].min_replicas"]),
        (({},), [f"schedule[0].{key}"
                 for key in ("name", "from", "until", "timezone", "min_replicas")]),
        (tuple(window(name=f"w{i}") for i in range(33)), ["schedule"]),
    ],
)  # fmt: skip
def test_validation_names_the_field(windows, want):
    errors = validate_schedule(scheduled(*windows))
    assert [error.field for error in errors] == want
    assert all(error.message.startswith("must ") for error in errors)


@pytest.mark.parametrize(
    ("own", "bounds", "want"),
    [
        ({"min_replicas": 4}, {"max_replicas": 3}, ["schedule[0].max_replicas"]),
        ({"replica_discrete_values": (1, 8)}, {"max_replicas": 9}, ["schedule[0].max_replicas"]),
        ({"min_replicas": 2, "replica_discrete_values": (2, 8)}, {"min_replicas": 1},
         ["schedule[0].min_replicas"]),
        ({"replica_discrete_values": (1, 8)}, {"min_replicas": 2, "max_replicas": 7},
         ["schedule[0].max_replicas"]),
        ({"min_replicas": 4, "replica_increment_step": 4}, {"min_replicas": 5, "max_replicas": 7},
         ["schedule[0].max_replicas"]),
        # while the policy itself is wrong, its own errors come first
        ({"min_replicas": 9}, {"max_replicas": 3}, []),
        ({"min_replicas": "x"}, {"max_replicas": 3}, []),
    ],
)  # fmt: skip
def test_bounds_are_checked_beside_those_of_the_policy(own, bounds, want):
    policy = scheduled(window(**{"max_replicas": None, **bounds}), **own)
    assert [error.field for error in validate_schedule(policy)] == want


def test_the_example_of_the_guide_is_taken():
    page = (Path(__file__).parents[3] / "docs" / "guides" / "schedules.md").read_text()
    windows = json.loads(page.split("```json\n")[1].split("```")[0])
    policy = scheduled(*windows)
    assert validate(policy) == []
    assert [bounds_at(policy, at(now))[0] for now in ("2026-03-04T22:00", "2026-03-07T22:00")] == [
        "nights",
        "weekend",
    ]
    # the night of a Friday reaches into the weekend, and comes first
    assert bounds_at(policy, at("2026-03-07T04:00"))[0] == "nights"


def test_a_policy_without_schedule_is_returned_as_it_is():
    policy = make_policy()
    assert bounds_at(policy, 0.0) == (None, policy)
    assert next_change(policy, 0.0) is None


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
CLOCKS = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 15, 30, 45]))


@st.composite
def schedules(draw):
    windows = []
    for i in range(draw(st.integers(1, 3))):
        start, end = draw(st.lists(CLOCKS, min_size=2, max_size=2, unique=True))
        windows.append(
            {
                "name": f"w{i}",
                "days": draw(st.lists(st.sampled_from(DAYS), min_size=1, unique=True)),
                "from": start,
                "until": end,
                "timezone": draw(st.sampled_from(ZONES)),
                "max_replicas": draw(st.integers(1, 20)),
            }
        )
    return scheduled(*windows)


@given(schedules(), st.integers(int(at("2026-01-01")), int(at("2027-01-01"))))
def test_nothing_changes_before_the_next_change_and_then_it_does(policy, now):
    name, found = bounds_at(policy, now)
    change = next_change(policy, now)
    assert validate(replace(found, schedule=())) == []
    assert next_change(found, now) == change
    if change is None:
        assert all(bounds_at(policy, now + hours * 3600)[0] == name for hours in range(24 * 15))
        return
    assert change > now
    span = change - now
    assert all(bounds_at(policy, now + span * part)[0] == name for part in (0.25, 0.5, 0.999))
    assert bounds_at(policy, change - 0.001)[0] == name
    assert bounds_at(policy, change)[0] != name


@given(schedules(), st.integers(int(at("2026-01-01")), int(at("2027-01-01"))))
def test_the_clocks_agree_with_the_window_on_days_without_change(policy, now):
    """Beside the definition by instants: what somebody reads off a clock on the wall."""
    holds = None
    for window in policy.schedule:
        local = datetime.fromtimestamp(now, ZoneInfo(window["timezone"]))
        offsets = {
            datetime.fromtimestamp(now + day * 86_400, local.tzinfo).utcoffset()
            for day in (-2, -1, 0, 1, 2)
        }
        if len(offsets) > 1:
            return
        clock = local.strftime("%H:%M")
        today = DAYS[local.weekday()] in window["days"]
        yesterday = DAYS[local.weekday() - 1] in window["days"]
        if window["from"] < window["until"]:
            inside = today and window["from"] <= clock < window["until"]
        else:
            inside = (today and clock >= window["from"]) or (yesterday and clock < window["until"])
        if inside and holds is None:
            holds = window["name"]
    assert bounds_at(policy, now)[0] == holds
