"""Cases in which a plausible planner goes wrong: each was wrong once, here or in the field."""

from __future__ import annotations

import dataclasses
import math

import pytest

from controlplane.engine import serving
from controlplane.engine.accounting import account
from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.curves import Curve
from controlplane.engine.placement import Capacity, shape_of
from controlplane.engine.plan import Plan, plan
from controlplane.engine.reasons import ReasonCode, because
from controlplane.engine.snapshot import ClusterSnapshot, History, TrainerReport
from controlplane.engine.types import PodPhase
from controlplane.engine.validation import still_valid
from tests.builders import (
    GPU,
    NOW,
    make_flight,
    make_key,
    make_node,
    make_nodes,
    make_pod,
    make_policies,
    make_policy,
    make_replicas,
    make_shape,
    make_snapshot,
    make_workload,
)

NAMES = [f"n{i:02}" for i in range(16)]


def sizes(made: Plan) -> list[tuple[str, int, int]]:
    """(job, from, to) of every command, by job."""
    return sorted((c.workload.name, c.from_replicas, c.to_replicas) for c in made.commands)


def decision(made: Plan, name: str):
    return next(d for d in made.decisions if d.workload.name == name)


def running(name: str, nodes: list[str | None], **fields):
    workload = make_workload(name, granted=len(nodes), **fields)
    return workload, make_replicas(workload, nodes)


def cluster(nodes: int, *jobs, pods=(), **fields) -> ClusterSnapshot:
    return make_snapshot(
        make_nodes(nodes),
        [*pods, *(pod for _, found in jobs for pod in found)],
        [workload for workload, _ in jobs],
        **fields,
    )


def waiting(name: str, n: int, gpus: int = 8, priority: int = 1000, **fields):
    key = make_key(name, kind="Deployment")
    return [
        make_pod(f"{name}-{i}", gpus=gpus, priority=priority, workload=key, **fields)
        for i in range(n)
    ]


# -- accounting ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        ([{"nominated_node": "n0", "gpus": 2}], {"free": 6, "reserved": 2}),
        # the victims of a preemption leave while its pod is already nominated: 8 of 8, not 16
        (
            [
                {"node": "n0", "gpus": 8, "deleting": True},
                {"nominated_node": "n0", "gpus": 8, "priority": 9},
            ],
            {"terminating": 8},
        ),
        ([{"nominated_node": "n0", "gpus": 2, "deleting": True}], {"free": 8}),
    ],
)
def test_a_nominated_pod_reserves_what_is_empty_and_no_more(pods, want):
    found = [make_pod(f"p{i}", **fields) for i, fields in enumerate(pods)]
    states = account(make_snapshot([make_node("n0")], found))
    assert states.totals == {GPU: want}
    assert states.holders.get(GPU, {}) == (
        {} if "terminating" not in want else {next(iter(states.holders[GPU])): 8}
    )


def test_what_nobody_granted_is_not_reserved():
    """A managed Deployment without a policy, whose pods carry no index."""
    serving = make_workload("web", granted=2, key=make_key("web", "Deployment"), policy=None)
    pods = [make_pod(f"web-{i}", node="n00", gpus=4, workload=serving.key) for i in range(2)]
    found = account(make_snapshot(make_nodes(2), pods, [serving]))
    assert found.totals == {GPU: {"free": 8, "used": 8}}


def test_a_start_under_way_is_reserved_for_everybody():
    new = make_workload("new", granted=0, suspended=True, priority=50)
    flight = make_flight(new, 2)
    snapshot = cluster(4, (new, []), running("old", ["n00"]), in_flight=[flight])
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == [("old", 1, 2)]
    assert made.accounting.totals == {GPU: {"free": 8, "used": 8, "reserved": 16}}
    assert decision(made, "new").reason.code is ReasonCode.IN_FLIGHT


# -- demand ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, "nobody"])
def test_a_managed_inelastic_workload_reclaims_like_any_other(policy):
    serving = make_workload(
        "web", granted=2, key=make_key("web", "Deployment"), policy=policy, priority=1000
    )
    there = make_pod("web-0", node="n00", workload=serving.key, priority=1000)
    missing = make_pod("web-1", workload=serving.key, priority=1000)
    low = running("low", ["n01", "n02"])
    made = plan(cluster(3, (serving, [there, missing]), low), make_policies(), NOW)
    assert sizes(made) == [("low", 2, 1)]
    assert [(p.workload_or_pod, p.pods) for p in made.pending] == [("Deployment/ml/web", 1)]


def test_finished_replicas_are_not_waited_for():
    """An Indexed Job never makes a succeeded index anew (kueue 13117): nothing is missing."""
    job, pods = running("a", NAMES[:4])
    done = [dataclasses.replace(p, phase=PodPhase.SUCCEEDED, ready=False) for p in pods[:2]]
    snapshot = cluster(
        4, (job, [*done, *pods[2:]]), history={job.key: History(short_since=NOW - 900)}
    )
    made = plan(snapshot, make_policies(make_policy(max_replicas=4)), NOW)
    assert sizes(made) == []
    assert decision(made, "a").short_since is None
    assert made.pending == ()
    assert made.accounting.totals == {GPU: {"free": 16, "used": 16}}


def test_a_job_below_its_minimum_comes_up_whole_or_waits():
    """Its gang misses two replicas and one place is free: it takes none, and another may."""
    policies = make_policies(
        make_policy(min_replicas=3), make_policy("small", min_replicas=1, max_replicas=2)
    )
    gang = running("gang", ["n00"], priority=500)
    small = running("small", ["n01"], policy="small", priority=10)
    made = plan(cluster(3, gang, small), policies, NOW)
    assert sizes(made) == [("small", 1, 2)]
    assert decision(made, "gang").reason.code is ReasonCode.WAITS_FOR_MINIMUM


# -- reclaim ---------------------------------------------------------------------------------


def test_the_job_that_frees_what_helps_at_the_least_cost_gives():
    """Only n06 is in the zone. `wide` has it under its replica 2 of 6 and would lose four
    replicas; `narrow` has n07 of the zone under its last one."""
    nodes = [
        make_node(name, labels={"zone": "b"} if name in ("n06", "n07") else {})
        for name in NAMES[:10]
    ]
    wide = running("wide", ["n00", "n01", "n06", "n02", "n03", "n04"])
    narrow = running("narrow", ["n08", "n07"])
    busy = [make_pod("busy", node="n09"), make_pod("busier", node="n05")]
    snapshot = make_snapshot(
        nodes,
        [*wide[1], *narrow[1], *busy, *waiting("web", 1, node_selector={"zone": "b"})],
        [wide[0], narrow[0]],
    )
    assert sizes(plan(snapshot, make_policies(), NOW)) == [("narrow", 2, 1)]


def test_jobs_of_low_priority_together_before_one_of_higher():
    """Two halves of a node from two jobs of priority 50 spare the job of 200."""
    half = make_shape(4)
    one = make_workload("one", granted=2, shape=half, priority=50)
    two = make_workload("two", granted=2, shape=half, priority=50)
    jobs = [(w, make_replicas(w, ["n00", "n01"])) for w in (one, two)]
    high = running("high", ["n02", "n03"], priority=200)
    made = plan(cluster(4, *jobs, high, pods=waiting("web", 1)), make_policies(), NOW)
    assert sizes(made) == [("one", 2, 1), ("two", 2, 1)]


def test_no_step_is_given_that_the_demand_can_do_without():
    """n00 and n02 are held by both in halves. n00 costs three replicas, n02 four."""
    half = make_shape(4)
    deep = make_workload("deep", granted=3, shape=half)
    other = make_workload("other", granted=4, shape=half)
    jobs = [
        (deep, make_replicas(deep, ["n01", "n00", "n02"])),
        (other, make_replicas(other, ["n01", "n02", "n03", "n00"])),
    ]
    beside = make_pod("beside", gpus=4, node="n03")
    made = plan(cluster(4, *jobs, pods=[beside, *waiting("web", 1)]), make_policies(), NOW)
    assert made.pending[0].reason.code is ReasonCode.RECLAIMS
    assert sizes(made) == [("deep", 3, 1), ("other", 4, 3)]


def test_why_each_candidate_could_not_help_is_told_with_the_demand():
    policies = make_policies(
        make_policy(min_replicas=1), make_policy("two", min_replicas=2, max_replicas=2)
    )
    jobs = (
        running("equal", ["n00", "n01"], priority=1000),
        running("least", ["n02", "n03"], policy="two"),
        running("useless", ["n04", "n05"]),
    )
    pods = waiting("web", 1, node_selector={"zone": "none"})
    made = plan(cluster(6, *jobs, pods=pods), policies, NOW)
    (demand,) = made.pending
    assert demand.reason.code is ReasonCode.NO_CAPACITY
    assert [(r.candidate, r.reason.code) for r in demand.rejected] == [
        ("Job/ml/equal", ReasonCode.PRIORITY_NOT_LOWER),
        ("Job/ml/least", ReasonCode.AT_MINIMUM),
        ("Job/ml/useless", ReasonCode.FREES_NOTHING_USEFUL),
    ]
    assert sizes(made) == []


def test_equal_shapes_that_cannot_fit_are_tried_once(monkeypatch):
    """10,000 pending of one shape that can't fit, one that can behind them (kueue 9715): the
    work doesn't grow with their number."""
    tried = []
    reclaim = serving.reclaim_unit
    monkeypatch.setattr(serving, "reclaim_unit", lambda *a: tried.append(1) or reclaim(*a))
    blocked = [make_pod(f"big-{i:05}", gpus=16, priority=2000) for i in range(10_000)]
    fits = make_pod("small", gpus=8, priority=10)
    low = running("low", ["n00", "n01"])
    made = plan(cluster(3, low, pods=[*blocked, fits]), make_policies(), NOW)
    assert made.pending[-1].reason.code is ReasonCode.FITS
    assert sum(p.reason.code is ReasonCode.NO_CAPACITY for p in made.pending) == 10_000
    assert len(tried) == 1


def test_pods_left_over_from_an_earlier_shrink_are_freed_once():
    """Two replicas beyond what is granted still stand on n03: 8 come free there, not 16."""
    hurt = make_workload("hurt", granted=3, shape=make_shape(4))
    pods = make_replicas(hurt, ["n00", "n01", None, "n03", "n03"])
    snapshot = cluster(
        4,
        (hurt, pods),
        pods=[make_pod("b", node="n02"), *waiting("web", 4, priority=50)],
        history={hurt.key: History(short_since=NOW - 900)},
    )
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == [("hurt", 3, 2)]
    assert made.pending[0].reason.numbers["placed"] == 1


# -- faults ----------------------------------------------------------------------------------


def test_the_next_fault_has_a_time_out_of_its_own():
    """After a shrink the clock starts anew: a job doesn't fall step by step at once."""
    hurt, pods = running("hurt", ["n00", None, "n02", "n03"])
    busy = [make_pod("busy", node="n01")]
    snapshot = cluster(
        4, (hurt, pods), pods=busy, history={hurt.key: History(short_since=NOW - 300)}
    )
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == [("hurt", 4, 3)]
    assert decision(made, "hurt").short_since is None


@pytest.mark.parametrize(
    ("lost", "want"),
    [(0, []), (2, []), (3, [("hurt", 4, 3)])],
)
def test_a_shrink_that_leaves_the_lost_replica_in_is_no_use(lost, want):
    """The highest indexes leave (KEP-3715). While a replica with a low one still holds its place
    on a bad node, a shrink would only cost a healthy one."""
    hurt, pods = running("hurt", NAMES[:4])
    pods[lost] = dataclasses.replace(pods[lost], ready=False)
    snapshot = cluster(4, (hurt, pods), history={hurt.key: History(short_since=NOW - 900)})
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == want
    if not want:
        assert decision(made, "hurt").reason.code is ReasonCode.REPAIRING


def test_a_gang_that_still_forms_is_held():
    """Nodes boot slower than the time-out: none runs yet, so nothing is given up (ray 50783)."""
    new, pods = running("new", [None, None])
    snapshot = cluster(0, (new, pods), history={new.key: History(short_since=NOW - 3600)})
    assert sizes(plan(snapshot, make_policies(make_policy(min_replicas=2)), NOW)) == []


def test_one_that_stays_pending_does_not_hold_the_others():
    """One worker stays Pending: the job goes on at what runs (dlrover 1175)."""
    job, pods = running("a", ["n00", None, "n01"])
    snapshot = cluster(2, (job, pods), history={job.key: History(short_since=NOW - 301)})
    assert sizes(plan(snapshot, make_policies(), NOW)) == [("a", 3, 2)]


# -- growth ----------------------------------------------------------------------------------


def test_the_gain_of_a_growth_is_that_of_the_whole_of_it():
    """From 32 to 64 replicas: 1 % a step, 87 % together; min_gain 20 % asks for the latter."""
    names = [f"n{i:02}" for i in range(32)]
    job = running("a", names)
    policy = make_policy(max_replicas=64, min_gain=0.2)
    assert sizes(plan(cluster(64, job), make_policies(policy), NOW)) == [("a", 32, 64)]
    held = plan(cluster(34, job), make_policies(policy), NOW)
    assert sizes(held) == []
    assert decision(held, "a").reason.code is ReasonCode.GAIN_TOO_SMALL


def test_places_that_bring_one_job_nothing_go_to_the_other():
    flat = TrainerReport(
        productive=1, throughput={1: 100.0, 2: 180.0, 3: 170.0},
        deviation={1: 0.0, 2: 0.0, 3: 0.0}, reported_at=NOW,
    )  # fmt: skip
    one, two = running("one", ["n00"], priority=200), running("two", ["n01"])
    snapshot = cluster(6, one, two, reports={make_key("one"): flat})
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == [("one", 1, 2), ("two", 1, 4)]
    assert [(r.candidate, r.reason.code) for r in decision(made, "one").rejected] == [
        ("3 replicas", ReasonCode.GAIN_TOO_SMALL)
    ]


def test_a_pause_that_costs_more_than_the_growth_brings_is_not_taken():
    """+87 % for ten minutes do not pay for five minutes of standing still."""
    costly = TrainerReport(productive=1, resize_cost_s=300.0, reported_at=NOW)
    snapshot = cluster(2, running("a", ["n00"]), reports={make_key("a"): costly})
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == []
    assert decision(made, "a").reason.code is ReasonCode.GAIN_TOO_SMALL


def test_a_damped_growth_reserves_nothing():
    """The higher priority still waits for its window; the other may have the place, and the first
    says what it waits for."""
    policies = make_policies(make_policy(), make_policy("slow", scaling_timeout=60.0))
    slow = make_workload("slow", granted=1, policy="slow", priority=900)
    made = plan(
        cluster(3, (slow, make_replicas(slow, ["n00"])), running("quick", ["n01"])), policies, NOW
    )
    assert sizes(made) == [("quick", 1, 2)]
    assert decision(made, "slow").reason.code is ReasonCode.STABILIZING
    assert made.next_wake == NOW + 60


# -- a command on a newer snapshot -----------------------------------------------------------


def test_a_growth_leaves_room_for_what_others_were_granted():
    """Two growths of one plan, then a node is lost: the first was written, so the second is not."""
    first, second = running("first", ["n00"]), running("second", ["n01"])
    grown = (dataclasses.replace(first[0], granted=2), first[1])
    growth = Command(
        CommandKind.RESIZE, second[0].key, 1, 2, (), "1",
        because(ReasonCode.GROWS, from_=1, to=2),
    )  # fmt: skip
    assert still_valid(growth, cluster(4, grown, second), NOW) is None
    found = still_valid(growth, cluster(3, grown, second), NOW)
    assert found is not None
    assert found.code is ReasonCode.NO_LONGER_FITS


# -- placement -------------------------------------------------------------------------------


def test_best_fit_keeps_whole_nodes_whole():
    room = Capacity(make_nodes(3), [make_pod("a", gpus=4, node="n01")])
    shape = shape_of(make_shape(2))
    assert room.take_now(shape, 3) == ("n01", "n01", "n00")


def test_a_failed_take_leaves_nothing_taken():
    room = Capacity(make_nodes(2), [])
    shape = shape_of(make_shape(8))
    assert room.take_now(shape, 3) is None
    assert room.take_now(shape, 2) == ("n00", "n01")


def test_a_place_that_comes_free_counts_later_and_not_now():
    leaving = make_pod("a", node="n00", deleting=True)
    room = Capacity(make_nodes(1), [leaving])
    shape = shape_of(make_shape(8))
    assert room.take_now(shape) is None
    assert room.take_later(shape) == ("n00",)


def test_a_full_cluster_is_looked_at_again_once_something_leaves():
    pod = make_pod("a", node="n00")
    room = Capacity(make_nodes(1), [pod])
    shape = shape_of(make_shape(8))
    assert room.take_later(shape) is None
    room.release(pod)
    assert room.take_later(shape) == ("n00",)


@pytest.mark.parametrize("rates", [{2: 5e-324}, {2: math.inf}, {2: 1e308, 8: 1e308}, {8: 5e-324}])
def test_throughput_that_is_no_measurement_is_not_reckoned_with(rates) -> None:
    assert Curve.fit(rates).rate(4) == pytest.approx(4**0.9)
