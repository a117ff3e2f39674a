"""Reported from the field, and its kind: capacity, topology, reservations, nodes, damping (the
table of the reports is in test_scenarios.py)."""

from __future__ import annotations

import dataclasses

import pytest

from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.plan import plan
from controlplane.engine.reasons import ReasonCode, because
from controlplane.engine.snapshot import Departure, History, Move, NodeHistory
from controlplane.engine.types import PodPhase, Taint, VictimChoice
from controlplane.engine.validation import still_valid
from tests.builders import (
    GPU,
    NOW,
    make_flight,
    make_key,
    make_node,
    make_nodes,
    make_pod,
    make_policy,
    make_replicas,
    make_shape,
    make_snapshot,
    make_workload,
)
from tests.scenario_kit import (
    AMD,
    NAMES,
    RACK,
    cluster,
    decision,
    queue,
    rules,
    running,
    sizes,
    suspended,
    waiting,
    waits_for,
    why,
)

# -- capacity --------------------------------------------------------------------------------


def test_kueue_9616_a_taint_between_decision_and_pod_is_planned_again():
    """The growth isn't written any more; if it was, its pod gets another node, or the job goes
    back to what runs once its fault time-out is over."""
    taint = Taint("node.example.com/broken", "", "NoSchedule")
    job, pods = running("a", ["n00"])
    reason = because(ReasonCode.GROWS, from_=1, to=2)
    grows = Command(CommandKind.RESIZE, job.key, 1, 2, (), "1", reason)
    tainted = [make_node("n00"), make_node("n01", taints=(taint,))]
    assert still_valid(grows, cluster(2, (job, pods)), NOW) is None
    refused = still_valid(grows, cluster(tainted, (job, pods)), NOW)
    assert refused is not None
    assert refused.code is ReasonCode.NO_LONGER_FITS
    stuck = running("a", ["n00", None])
    elsewhere = plan(cluster([*tainted, make_node("n02")], stuck), rules(), NOW)
    assert waits_for(elsewhere, "a") is ReasonCode.FITS
    late = {stuck[0].key: History(short_since=NOW - 300)}
    assert sizes(plan(cluster(tainted, stuck, history=late), rules(), NOW)) == [("a", 2, 1)]


def test_kueue_9616_what_is_planned_beside_a_waiting_pod_may_be_written():
    """A pod of higher priority gets half of the free node; the replica that a running job lost no
    longer fits there, a small start does: the check before writing must come to the same."""
    hurt = running("hurt", ["n00", None])
    small = suspended("small", shape=make_shape(2))
    snapshot = cluster(2, hurt, small, pods=waiting("web", gpus=4))
    (command,) = plan(snapshot, rules(), NOW).commands
    assert command.workload.name == "small"
    assert still_valid(command, snapshot, NOW) is None


def test_kueue_14570_what_is_in_flight_is_given_once():
    """A start under way holds the only place against one of higher priority, too."""
    first = suspended("first", priority=50)
    flight = make_flight(first[0], 1, from_replicas=0)
    snapshot = cluster(1, first, suspended("second", priority=100), in_flight=[flight])
    assert sizes(plan(snapshot, rules(), NOW)) == []


def test_kueue_14570_two_queues_get_the_same_eight_once():
    """8 that a cohort can lend and two jobs of two queues, with places for both."""
    queues = [queue("a", 0, cohort="c"), queue("b", 0, cohort="c"), queue("own", 8, cohort="c")]
    snapshot = cluster(4, suspended("one", queue="a"), suspended("two", queue="b"))
    made = plan(snapshot, rules(queues=queues), NOW)
    assert sizes(made) == [("one", 1, 1)]
    assert why(made, "two") is ReasonCode.WAITS_FOR_QUOTA


@pytest.mark.parametrize(
    ("hurt", "code", "missing"), [(0, ReasonCode.FITS, None), (2, ReasonCode.NO_CAPACITY, 8)]
)
def test_volcano_5911_free_is_by_device_and_the_reason_says_what_is_missing(hurt, code, missing):
    """32 accelerators, 16 used; one dies: a used one takes nothing from 16 that are free, a free
    one takes a whole place."""
    nodes = list(make_nodes(4))
    nodes[hurt] = dataclasses.replace(
        nodes[hurt], allocatable={**nodes[hurt].allocatable, GPU: 7}, unhealthy={GPU: 1}
    )
    used = [make_pod(f"u{i}", node=NAMES[i]) for i in range(2)]
    made = plan(cluster(nodes, pods=[*used, *waiting("web", 2)]), rules(), NOW)
    assert made.pending[0].reason.code is code
    assert made.pending[0].reason.numbers.get("accelerators") == missing


def test_kueue_14811_a_command_that_is_over_reserves_nothing():
    """A start that timed out: its places are free for another at once."""
    gone = suspended("gone", priority=50)
    under_way = cluster(1, gone, suspended("next", priority=100),
                        in_flight=[make_flight(gone[0], 1, from_replicas=0)])  # fmt: skip
    assert sizes(plan(under_way, rules(), NOW)) == []
    over = dataclasses.replace(under_way, in_flight=())
    made = plan(over, rules(), NOW)
    assert sizes(made) == [("next", 1, 1)]


def test_trainer_1593_pods_that_failed_on_their_way_out_are_ignored():
    job, pods = running("a", NAMES[:4])
    failed = [dataclasses.replace(p, phase=PodPhase.FAILED, ready=False) for p in pods[2:]]
    shrunk = (dataclasses.replace(job, granted=2), [*pods[:2], *failed])
    made = plan(cluster(2, shrunk), rules(), NOW)
    assert (sizes(made), made.pending) == ([], ())
    assert decision(made, "a").short_since is None


# -- topology --------------------------------------------------------------------------------


def racks(*of: str | None):
    return [make_node(NAMES[i], labels={RACK: r} if r else {}) for i, r in enumerate(of)]


def in_rack(required: bool):
    return make_shape(topology=RACK, topology_required=required)


@pytest.mark.parametrize(
    ("nodes", "required", "want"),
    [
        (("a", "a", "b", "b"), True, [("gang", 2, 2)]),
        (("a", "b", "c", "d"), True, []),
        (("a", "b", "c", "d"), False, [("gang", 2, 2)]),
        (("a", None, None, None), True, []),
        ((None, None), False, [("gang", 2, 2)]),
    ],
)
def test_a_gang_starts_within_one_rack_or_only_prefers_to(nodes, required, want):
    gang = suspended("gang", 2, shape=in_rack(required), policy="two")
    policies = rules(make_policy("two", min_replicas=2, max_replicas=2), topology_levels=(RACK,))
    assert sizes(plan(cluster(racks(*nodes), gang), policies, NOW)) == want


@pytest.mark.parametrize(("required", "want"), [(True, [("a", 1, 2)]), (False, [("a", 1, 4)])])
def test_growth_stays_in_the_rack_where_that_is_required(required, want):
    job = running("a", ["n00"], shape=in_rack(required))
    made = plan(cluster(racks("a", "a", "b", "b"), job), rules(topology_levels=(RACK,)), NOW)
    assert sizes(made) == want


def test_a_reclaim_for_a_gang_frees_places_of_one_rack():
    """`wide` has one replica above its minimum in each rack, `b` both in rack b."""
    policies = rules(make_policy(), make_policy("two", min_replicas=2, max_replicas=2))
    wide = running("wide", ["n00", "n02"], priority=10)
    narrow = running("narrow", ["n04", "n05", "n03"], priority=50)
    gang = suspended("gang", 2, shape=in_rack(True), policy="two", priority=200)
    snapshot = cluster(racks("a", "b", "c", "c", "c", "c"), wide, narrow, gang,
                       pods=[make_pod("busy", node="n01")])  # fmt: skip
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == [("narrow", 3, 2), ("wide", 2, 1)]
    freed = {p.node for p in snapshot.pods for c in made.commands if p.name in c.victims}
    assert freed == {"n02", "n03"}


def test_a_reclaim_frees_nothing_outside_of_the_level_that_is_required():
    """The only node with a rack is taken for good: the pod of the others would be of no use."""
    gang = suspended("gang", shape=in_rack(True), policy="one", priority=500)
    policies = rules(make_policy(), make_policy("one", max_replicas=1))
    snapshot = cluster(
        racks("a", None, None), running("low", ["n01", "n02"]), gang,
        pods=[make_pod("busy", node="n00")],
    )  # fmt: skip
    assert sizes(plan(snapshot, policies, NOW)) == []


def test_all_replicas_that_come_back_at_once_fit_one_rack_or_do_not_fit():
    job = make_workload("a", granted=2, policy="two", shape=in_rack(True))
    pods = [*make_replicas(job, [None, None]), make_pod("x", node="n00"), make_pod("y", node="n02")]
    snapshot = make_snapshot(racks("a", "a", "b", "b"), pods, [job])
    made = plan(snapshot, rules(make_policy("two", min_replicas=2)), NOW)
    assert waits_for(made, "a") is ReasonCode.NO_CAPACITY


# -- reservations, spares, reserves ----------------------------------------------------------

PATIENT = queue("q", reserve_after_s=600.0)


def head(**fields):
    """A gang of 2 that has waited for 900 s."""
    return suspended("head", 2, policy="two", queue="q", created_at=NOW - 900, **fields)


@pytest.mark.parametrize(
    ("q", "want", "reserved"),
    [
        (PATIENT, [], {"n01": {GPU: 8}}),
        (queue("q", reserve_after_s=901.0), [("a", 1, 2)], None),
        (queue("q"), [("a", 1, 2)], None),
    ],
)
def test_a_head_that_has_waited_long_gets_what_comes_free(q, want, reserved):
    policies = rules(make_policy(), make_policy("two", min_replicas=2), queues=[q])
    snapshot = cluster(2, running("a", ["n00"]), head())
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == want
    assert [(r.demand, r.nodes) for r in made.reservations] == (
        [("Job/ml/head", reserved)] if reserved else []
    )
    if reserved:
        assert waits_for(made, "head") is ReasonCode.RESERVES


def test_what_is_behind_a_reservation_starts_only_beside_it():
    policies = rules(
        make_policy(max_replicas=1), make_policy("two", min_replicas=2), queues=[PATIENT]
    )
    busy = [make_pod("busy", node="n00")]
    behind = suspended("behind", queue="q", created_at=NOW - 10)
    tight = plan(cluster(2, head(), behind, pods=busy), policies, NOW)
    assert sizes(tight) == []
    assert why(tight, "behind") is ReasonCode.WAITS_FOR_RESERVATION
    roomy = plan(cluster(3, head(), behind, pods=busy), policies, NOW)
    assert sizes(roomy) == [("head", 2, 2)]


def test_a_reservation_wakes_the_loop_when_it_is_due():
    policies = rules(make_policy("two", min_replicas=2), queues=[PATIENT])
    young = suspended("head", 2, policy="two", queue="q", created_at=NOW - 100)
    assert plan(cluster(1, young), policies, NOW).next_wake == NOW + 500


def test_a_reservation_is_of_one_rack_where_that_is_required():
    policies = rules(make_policy("two", min_replicas=2), queues=[PATIENT])
    busy = [make_pod("x", node="n00"), make_pod("y", node="n02")]
    snapshot = cluster(racks("a", "a", "b", "b"), head(shape=in_rack(True)), pods=busy)
    made = plan(snapshot, policies, NOW)
    assert [list(r.nodes) for r in made.reservations] == [["n01"]]


def test_nothing_is_reserved_for_what_the_cluster_could_never_hold():
    policies = rules(make_policy(), make_policy("two", min_replicas=9, max_replicas=9),
                     queues=[PATIENT])  # fmt: skip
    made = plan(cluster(2, running("a", ["n00"]), head()), policies, NOW)
    assert (sizes(made), made.reservations) == ([("a", 1, 2)], ())


@pytest.mark.parametrize(
    ("kept", "want"),
    [
        ({}, [("a", 1, 4)]),
        ({"spares": {GPU: 8}}, [("a", 1, 3)]),
        ({"reserves": {GPU: 8}}, [("a", 1, 3)]),
        ({"spares": {GPU: 8}, "reserves": {GPU: 8}}, [("a", 1, 2)]),
        ({"spares": {GPU: 24}}, []),
        ({"spares": {AMD: 24}}, [("a", 1, 4)]),
    ],
)
def test_growth_keeps_spares_and_reserves_free(kept, want):
    made = plan(cluster(4, running("a", ["n00"])), rules(**kept), NOW)
    assert sizes(made) == want
    if not want:
        assert why(made, "a") is ReasonCode.CAPACITY_KEPT


def test_repairs_and_demand_use_what_growth_keeps_free():
    hurt = running("hurt", ["n00", None])
    snapshot = cluster(4, hurt, suspended("new"), pods=waiting("web"))
    made = plan(snapshot, rules(make_policy(max_replicas=2), spares={GPU: 24}), NOW)
    assert sizes(made) == [("new", 1, 1)]
    assert {waits_for(made, name) for name in ("hurt", "web", "new")} == {ReasonCode.FITS}


# -- nodes that leave, offend or hang ---------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "nodes", "victims", "want"),
    [
        (NOW + 60, ["n00", "n01"], VictimChoice.HIGHEST_INDEX, [("a", 2, 1)]),
        (None, ["n00", "n01"], VictimChoice.HIGHEST_INDEX, [("a", 2, 1)]),
        (NOW + 9000, ["n00", "n01"], VictimChoice.HIGHEST_INDEX, []),
        (NOW + 60, ["n01", "n00"], VictimChoice.HIGHEST_INDEX, []),
        (NOW + 60, ["n01", "n00"], VictimChoice.NAMED, [("a", 2, 1)]),
    ],
)
def test_replicas_leave_before_their_node_does(at, nodes, victims, want):
    """n01 leaves. Only the last replicas of an Indexed Job can go, and never the minimum."""
    leaves = make_node("n01", departure=Departure("maintenance", at, "annotation"))
    job = running("a", nodes, victims=victims)
    made = plan(cluster([make_node("n00"), leaves], job), rules(), NOW)
    assert sizes(made) == want
    if want:
        assert made.commands[0].reason.code is ReasonCode.SHRINKS_BEFORE_DEPARTURE
        assert made.commands[0].victims == (f"a-{nodes.index('n01')}",)
    announced = at is None or at < NOW + 3600
    assert [n.subject for n in made.notices] == (["Node/n01"] if announced else [])
    assert made.next_wake == (None if announced else at - 3600)


def test_nothing_new_goes_to_a_repeat_offender_until_it_has_rested():
    faults = {"n01": NodeHistory((NOW - 300, NOW - 200, NOW - 100))}
    made = plan(cluster(2, running("a", ["n00"]), node_history=faults), rules(), NOW)
    assert sizes(made) == []
    assert [(n.subject, n.reason.code) for n in made.notices] == [
        ("Node/n01", ReasonCode.REPEAT_OFFENDER)
    ]
    assert made.next_wake == NOW - 100 + 14_400
    rested = rules(offender_rest_s=60.0)
    snapshot = cluster(2, running("a", ["n00"]), node_history=faults)
    assert sizes(plan(snapshot, rested, NOW)) == [("a", 1, 2)]


@pytest.mark.parametrize(("late", "want"), [(299.0, []), (300.0, ["Pod/ml/old"])])
def test_a_pod_that_hangs_is_escalated_and_still_held(late, want):
    old = make_pod("old", node="n00", deleting=True, deletion_due=NOW - late)
    made = plan(cluster(1, pods=[old, *waiting("web")]), rules(), NOW)
    assert [n.subject for n in made.notices] == want
    assert made.accounting.totals[GPU] == {"terminating": 8}
    assert waits_for(made, "web") is ReasonCode.WAITS_FOR_RELEASE


@pytest.mark.parametrize(("apart", "want"), [(30.0, ["Job/ml/a"]), (90.0, [])])
def test_a_job_that_went_up_and_back_within_its_cooldown_is_told(apart, want):
    moves = (Move(NOW - 200, 1, 2), Move(NOW - 200 + apart, 2, 1))
    history = {make_key("a"): History(moves=moves)}
    snapshot = cluster(1, running("a", ["n00"]), history=history)
    made = plan(snapshot, rules(make_policy(cooldown=60.0)), NOW)
    assert [n.subject for n in made.notices] == want


# -- damping ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("ago", "want"), [(30, ReasonCode.BACKING_OFF), (61, ReasonCode.GROWS)])
def test_after_a_resize_that_failed_growth_backs_off(ago, want):
    history = {make_key("a"): History(failed_resizes=(NOW - ago,))}
    made = plan(cluster(2, running("a", ["n00"]), history=history), rules(), NOW)
    assert why(made, "a") is want
    assert made.next_wake == (NOW + 30 if want is ReasonCode.BACKING_OFF else None)


def test_a_giver_that_rests_wakes_the_loop():
    policies = rules(make_policy(), make_policy("three", max_replicas=3, cooldown=60.0))
    history = {make_key("a"): History(last_resize_at=NOW - 10)}
    jobs = running("a", NAMES[:3], policy="three"), running("b", ["n03"])
    made = plan(cluster(4, *jobs, history=history), policies, NOW)
    assert sizes(made) == []
    assert made.next_wake == NOW + 50


def test_a_job_that_rests_without_room_does_not_say_that_it_has_its_maximum():
    nodes = [make_node(NAMES[i], labels={"zone": "a" if i < 2 else "b"}) for i in range(4)]
    a, b = (make_shape(node_selector={"zone": zone}) for zone in "ab")
    snapshot = cluster(
        nodes, running("a", NAMES[:2], shape=a), running("b", ["n02"], shape=b),
        history={make_key("a"): History(last_resize_at=NOW - 5)},
    )  # fmt: skip
    made = plan(snapshot, rules(make_policy(cooldown=60.0)), NOW)
    assert sizes(made) == [("b", 1, 2)]
    assert why(made, "a") is ReasonCode.NO_ROOM


NIGHTS = {"name": "nights", "from": "20:00", "until": "06:00", "timezone": "UTC"}
DAY_S = 86_400.0
#: a midnight
MIDNIGHT = NOW // DAY_S * DAY_S


@pytest.mark.parametrize(
    ("hour", "bounds", "want", "code"),
    [
        (21, {"max_replicas": 2}, [("a", 4, 2)], ReasonCode.SHRINKS_TO_SCHEDULE),
        (19, {"max_replicas": 2}, [], ReasonCode.AT_MAXIMUM),
        (21, {"max_replicas": 6}, [("a", 4, 6)], ReasonCode.GROWS),
        (19, {"max_replicas": 6}, [], ReasonCode.AT_MAXIMUM),
        (21, {"min_replicas": 6, "max_replicas": 8}, [("a", 4, 6)], ReasonCode.GROWS_TO_MINIMUM),
    ],
)
def test_a_window_of_the_schedule_changes_the_bounds(hour, bounds, want, code):
    now = MIDNIGHT + hour * 3600
    policy = make_policy(max_replicas=4, schedule=({**NIGHTS, **bounds},))
    made = plan(cluster(8, running("a", NAMES[:4]), taken_at=now), rules(policy), now)
    assert sizes(made) == want
    assert why(made, "a") is code
    if not made.pending:  # what fits is looked at again when it should have been bound
        assert made.next_wake == MIDNIGHT + (20 if hour < 20 else 30) * 3600
