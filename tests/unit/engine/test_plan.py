"""Whole cycles, small: a cluster, what should be decided, and why."""

from __future__ import annotations

import dataclasses

import pytest

from controlplane.engine.commands import CommandKind
from controlplane.engine.plan import Plan, plan
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.snapshot import ClusterSnapshot, History, TrainerReport
from controlplane.engine.types import Taint, Toleration
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

Size = tuple[str, int, int]


def sizes(made: Plan) -> list[Size]:
    """(job, from, to) of every command, by job."""
    found = [(c.workload.name, c.from_replicas, c.to_replicas) for c in made.commands]
    return sorted(found)


def why(made: Plan, name: str) -> ReasonCode:
    return next(d.reason.code for d in made.decisions if d.workload.name == name)


def running(name: str, nodes: list[str], **fields):
    """A job with one 8-accelerator replica on each node."""
    workload = make_workload(name, granted=len(nodes), **fields)
    return workload, make_replicas(workload, nodes)


def pending(n: int, gpus: int = 8, priority: int = 1000, **fields):
    key = make_key("infer", kind="Deployment")
    return [
        make_pod(f"infer-{i}", gpus=gpus, priority=priority, workload=key, **fields)
        for i in range(n)
    ]


NAMES = [f"n{i:02}" for i in range(8)]


def cluster(nodes: int, *jobs, pods=(), **fields) -> ClusterSnapshot:
    return make_snapshot(
        make_nodes(nodes),
        [*pods, *(pod for _, found in jobs for pod in found)],
        [workload for workload, _ in jobs],
        **fields,
    )


def test_grows_into_everything_that_is_idle():
    made = plan(cluster(4, running("a", ["n00"])), make_policies(), NOW)
    assert sizes(made) == [("a", 1, 4)]
    assert made.commands[0].reason.sentence == (
        "Grows from 1 to 4 replicas into idle accelerators."
    )


def test_growth_stops_at_whole_valid_steps():
    policies = make_policies(make_policy(min_replicas=2, replica_increment_step=2))
    made = plan(cluster(5, running("a", ["n00", "n01"])), policies, NOW)
    assert sizes(made) == [("a", 2, 4)]


def test_growth_is_by_placement_not_by_sum():
    """Four nodes with 4 free each are 16 accelerators and no replica of 8."""
    busy = [make_pod(f"b{i}", gpus=4, node=n) for i, n in enumerate(NAMES[1:5])]
    made = plan(cluster(5, running("a", ["n00"]), pods=busy), make_policies(), NOW)
    assert sizes(made) == []
    assert why(made, "a") is ReasonCode.NO_ROOM


def test_the_higher_priority_grows_first_and_equals_share():
    high = running("high", ["n00"], priority=200)
    one, two = running("one", ["n01"]), running("two", ["n02"])
    policies = make_policies(make_policy(max_replicas=3))
    made = plan(cluster(8, high, one, two), policies, NOW)
    assert sizes(made) == [("high", 1, 3), ("one", 1, 3), ("two", 1, 2)]


@pytest.mark.parametrize(
    ("history", "policy", "want", "wake"),
    [
        (History(), {"scaling_timeout": 10.0}, ReasonCode.STABILIZING, NOW + 10),
        (History(growth_wanted_since=NOW - 4), {"scaling_timeout": 10.0},
         ReasonCode.STABILIZING, NOW + 6),
        (History(last_resize_at=NOW - 5), {"cooldown": 30.0}, ReasonCode.COOLING_DOWN, NOW + 25),
        (History(last_restart_at=NOW - 5), {"scale_up_snooze": 30.0}, ReasonCode.SNOOZED, NOW + 25),
        (History(resizes=(NOW - 3000, NOW - 10)), {"restart_budget": 2},
         ReasonCode.BUDGET_SPENT, NOW + 600),
        (History(), {"min_gain": 0.95}, ReasonCode.GAIN_TOO_SMALL, None),
        (History(growth_wanted_since=NOW - 10), {"scaling_timeout": 10.0}, ReasonCode.GROWS, None),
        (History(last_resize_at=NOW - 30), {"cooldown": 30.0}, ReasonCode.GROWS, None),
    ],
)  # fmt: skip
def test_damping(history, policy, want, wake):
    snapshot = cluster(2, running("a", ["n00"]), history={make_key("a"): history})
    made = plan(snapshot, make_policies(make_policy(**policy)), NOW)
    assert why(made, "a") is want
    assert made.next_wake == wake
    assert bool(made.commands) == (want is ReasonCode.GROWS)


def test_room_that_must_last_is_remembered_and_forgotten():
    policies = make_policies(make_policy(scaling_timeout=10.0))
    first = plan(cluster(2, running("a", ["n00"])), policies, NOW)
    assert first.decisions[0].growth_wanted_since == NOW
    full = cluster(1, running("a", ["n00"]), history={make_key("a"): History(None, None, (), NOW)})
    assert plan(full, policies, NOW + 5).decisions[0].growth_wanted_since is None


def test_a_measured_flat_curve_is_no_gain():
    curve = {"throughput": {1: 100.0, 2: 101.0}, "deviation": {1: 0.0, 2: 0.0}}
    report = TrainerReport(productive=1, reported_at=NOW, **curve)
    snapshot = cluster(2, running("a", ["n00"]), reports={make_key("a"): report})
    made = plan(snapshot, make_policies(make_policy(min_gain=0.05)), NOW)
    assert why(made, "a") is ReasonCode.GAIN_TOO_SMALL
    # 1 % measured; half a percent of noise leaves 3.5 % possible (curves.LEAST_SLOPE)
    assert made.decisions[0].reason.numbers["gain_percent"] == 3.5


# -- reclaim ---------------------------------------------------------------------------------


def test_priority_takes_back_from_the_lowest_first():
    low, high = running("low", NAMES[:4], priority=100), running("high", NAMES[4:], priority=200)
    made = plan(cluster(8, low, high, pods=pending(2)), make_policies(), NOW)
    assert sizes(made) == [("low", 4, 2)]
    command = made.commands[0]
    assert command.victims == ("low-3", "low-2")
    assert command.precondition == "1"
    assert command.reason.sentence == (
        "Shrinks from 4 to 2 replicas: Deployment/ml/infer of priority 1000 needs 16 "
        "nvidia.com/gpu and this job has priority 100."
    )
    assert made.pending[0].reason.code is ReasonCode.RECLAIMS


def test_reclaim_reaches_the_next_job_once_the_first_is_at_its_minimum():
    low, high = running("low", NAMES[:4], priority=100), running("high", NAMES[4:], priority=200)
    policies = make_policies(make_policy(min_replicas=2))
    made = plan(cluster(8, low, high, pods=pending(3)), policies, NOW)
    assert sizes(made) == [("high", 4, 3), ("low", 4, 2)]


def test_reclaim_is_never_damped():
    history = {make_key("low"): History(last_resize_at=NOW, resizes=(NOW,), last_restart_at=NOW)}
    policy = make_policy(cooldown=600.0, scale_up_snooze=600.0, restart_budget=1)
    snapshot = cluster(4, running("low", NAMES[:4]), pods=pending(1), history=history)
    assert sizes(plan(snapshot, make_policies(policy), NOW)) == [("low", 4, 3)]


def test_the_least_that_helps_is_taken():
    """A job of high priority with min 1 of 4 pending takes one place, not four (volcano 2627)."""
    low = running("low", NAMES[:4], priority=100)
    high = make_workload("high", granted=4, priority=200)
    snapshot = cluster(4, low, (high, make_replicas(high, [None] * 4)))
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == [("low", 4, 3)]


def test_one_node_is_freed_whole():
    """A pod of 8 needs one node; half of two nodes is of no use (kueue 1309). The job that sits
    beside others gives nothing, the one that holds whole nodes does."""
    half = make_workload("half", granted=2, shape=make_shape(4), priority=50)
    halves = make_replicas(half, ["n00", "n01"])
    beside = [make_pod(f"x{i}", gpus=4, node=n) for i, n in enumerate(("n00", "n01"))]
    whole = running("whole", ["n02", "n03"], priority=100)
    snapshot = cluster(4, (half, halves), whole, pods=[*beside, *pending(1)])
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == [("whole", 2, 1)]
    rejected = {w.reason.code for d in made.decisions for w in d.rejected}
    assert rejected == set()
    assert made.pending[0].reason.numbers["donors"] == "Job/ml/whole"


def test_two_jobs_that_share_a_node_give_together():
    one = make_workload("one", granted=2, shape=make_shape(4))
    two = make_workload("two", granted=2, shape=make_shape(4))
    jobs = ((w, make_replicas(w, ["n00", "n01"])) for w in (one, two))
    made = plan(cluster(2, *jobs, pods=pending(1)), make_policies(), NOW)
    assert sizes(made) == [("one", 2, 1), ("two", 2, 1)]


def test_equals_never_take_from_each_other():
    """Two jobs, five places, min 1, one priority: nobody reclaims (volcano 3869)."""
    one, two = running("one", NAMES[:3]), running("two", NAMES[3:5])
    made = plan(cluster(5, one, two), make_policies(), NOW)
    assert sizes(made) == []


def test_no_second_reclaim_while_the_first_is_under_way():
    low, pods = running("low", NAMES[:4])
    snapshot = cluster(4, (low, pods), pods=pending(1), in_flight=[make_flight(low, 3)])
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == []
    assert made.pending[0].reason.code is ReasonCode.WAITS_FOR_RELEASE


def test_what_is_terminating_is_waited_for():
    low, pods = running("low", NAMES[:3])
    gone = dataclasses.replace(make_replicas(low, NAMES[:4])[3], deleting=True)
    snapshot = cluster(4, (low, pods), pods=[gone, *pending(1)])
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == []
    assert made.accounting.totals[GPU] == {"used": 24, "terminating": 8}


def test_a_written_growth_gives_way_to_a_reclaim():
    low, pods = running("low", NAMES[:2])
    grown = dataclasses.replace(low, granted=4)
    flight = make_flight(low, 4, state="applied")
    busy = [make_pod(f"b{i}", node=n) for i, n in enumerate(("n02",))]
    snapshot = cluster(4, (grown, pods), pods=[*busy, *pending(2)], in_flight=[flight])
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == [("low", 4, 1)]


def test_pending_that_fits_takes_free_places_before_growth():
    made = plan(cluster(3, running("a", ["n00"]), pods=pending(1)), make_policies(), NOW)
    assert sizes(made) == [("a", 1, 2)]
    assert made.pending[0].reason.code is ReasonCode.FITS


def test_a_blocked_head_starves_nobody():
    """10,000 of one shape that can't fit stand before one that can (kueue 9715)."""
    blocked = pending(50, gpus=16, priority=2000)
    small = make_pod("small", gpus=8, priority=10)
    made = plan(cluster(2, running("a", ["n00"]), pods=[*blocked, small]), make_policies(), NOW)
    assert [p.reason.code for p in made.pending] == [ReasonCode.NO_CAPACITY, ReasonCode.FITS]
    assert made.pending[0].reason.numbers["accelerators"] == 800


def test_types_of_accelerators_do_not_block_each_other():
    """(volcano 1425)"""
    other = make_pod("amd", priority=2000, requests={"amd.com/gpu": 8})
    made = plan(cluster(2, running("a", ["n00"]), pods=[other]), make_policies(), NOW)
    assert sizes(made) == [("a", 1, 2)]
    assert made.pending[0].reason.numbers["resource"] == "amd.com/gpu"


def test_a_demand_with_a_selector_reclaims_only_where_it_can_run():
    nodes = [make_node("n00"), make_node("n01", labels={"zone": "b"})]
    elsewhere, here = running("elsewhere", ["n00"], priority=1), running("here", ["n01"])
    grown = [(dataclasses.replace(w, granted=1), pods) for w, pods in (elsewhere, here)]
    snapshot = make_snapshot(
        nodes,
        [*pending(1, node_selector={"zone": "b"}), *(p for _, ps in grown for p in ps)],
        [w for w, _ in grown],
    )
    policies = make_policies(make_policy(min_replicas=1))
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == []
    assert made.pending[0].reason.code is ReasonCode.NO_CAPACITY


# -- starting, minimums, faults --------------------------------------------------------------


def test_a_suspended_job_starts_with_its_minimum_or_not_at_all():
    policies = make_policies(make_policy(min_replicas=3))
    job = make_workload("new", granted=3, suspended=True)
    made = plan(make_snapshot(make_nodes(4), [], [job]), policies, NOW)
    assert [(c.kind, c.to_replicas) for c in made.commands] == [(CommandKind.ADMIT, 3)]
    made = plan(make_snapshot(make_nodes(2), [], [job]), policies, NOW)
    assert sizes(made) == []
    assert why(made, "new") is ReasonCode.WAITS_FOR_MINIMUM


def test_two_gangs_of_which_one_fits_start_one_whole():
    """(volcano 3373)"""
    policies = make_policies(make_policy(min_replicas=4))
    jobs = [make_workload(n, granted=4, suspended=True) for n in ("one", "two")]
    made = plan(make_snapshot(make_nodes(4), [], jobs), policies, NOW)
    assert [c.workload.name for c in made.commands] == ["one"]


def test_a_job_below_its_minimum_is_brought_up_to_it():
    policies = make_policies(make_policy(min_replicas=3))
    made = plan(cluster(4, running("a", ["n00"])), policies, NOW)
    assert sizes(made) == [("a", 1, 3)]
    assert why(made, "a") is ReasonCode.GROWS_TO_MINIMUM


def test_repair_comes_before_growth_of_others():
    hurt = make_workload("hurt", granted=2)
    snapshot = cluster(
        3, (hurt, make_replicas(hurt, ["n00", None])), running("fine", ["n01"], priority=900)
    )
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == []
    assert why(made, "hurt") is ReasonCode.REPAIRING
    assert why(made, "fine") is ReasonCode.NO_ROOM


@pytest.mark.parametrize(("short_for", "want"), [(0.0, []), (299.0, []), (300.0, [("hurt", 4, 3)])])
def test_shrinks_to_what_runs_after_the_fault_timeout(short_for, want):
    hurt = make_workload("hurt", granted=4)
    since = NOW - short_for if short_for else None
    snapshot = cluster(
        3,
        (hurt, make_replicas(hurt, ["n00", "n01", "n02", None])),
        history={hurt.key: History(short_since=since)},
    )
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == want
    assert made.decisions[0].short_since == (None if want else NOW - short_for)
    assert made.next_wake == (None if want else NOW - short_for + 300)


def test_a_size_that_the_policy_does_not_know_falls_to_the_next_lower_one():
    policies = make_policies(make_policy(replica_discrete_values=(1, 2, 4), max_replicas=4))
    made = plan(cluster(3, running("a", NAMES[:3])), policies, NOW)
    assert sizes(made) == [("a", 3, 2)]
    assert why(made, "a") is ReasonCode.SHRINKS_TO_POLICY


@pytest.mark.parametrize(
    ("fields", "policy", "want"),
    [
        ({"policy": "nobody"}, {}, ReasonCode.POLICY_NOT_FOUND),
        ({"policy": None}, {}, ReasonCode.NOT_ELASTIC),
        ({"finished": True}, {}, ReasonCode.FINISHED),
        ({}, {"min_replicas": 5, "max_replicas": 2}, ReasonCode.POLICY_INVALID),
    ],
)
def test_what_cannot_be_planned_is_left_alone_and_says_why(fields, policy, want):
    snapshot = cluster(3, running("a", ["n00"], **fields))
    made = plan(snapshot, make_policies(make_policy(**policy)), NOW)
    assert sizes(made) == []
    assert why(made, "a") is want


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"complete": False}, ReasonCode.SNAPSHOT_INCOMPLETE),
        ({"taken_at": NOW - 31}, ReasonCode.SNAPSHOT_STALE),
    ],
)
def test_nothing_is_decided_on_what_is_not_known(fields, want):
    snapshot = cluster(3, running("a", ["n00"]), pods=pending(9), **fields)
    made = plan(snapshot, make_policies(), NOW)
    assert (made.commands, made.pending) == ((), ())
    assert why(made, "a") is want


def test_one_command_a_job_at_a_time():
    """A request of +1 while another is under way isn't lost or doubled (ray 48909)."""
    job, pods = running("a", ["n00"])
    snapshot = cluster(4, (job, pods), in_flight=[make_flight(job, 2)])
    made = plan(snapshot, make_policies(), NOW)
    assert sizes(made) == []
    assert why(made, "a") is ReasonCode.IN_FLIGHT
    assert made.accounting.totals[GPU] == {"free": 16, "used": 8, "reserved": 8}


def test_two_jobs_never_get_the_same_places():
    """(kueue 14570)"""
    one, two = running("one", ["n00"]), running("two", ["n01"])
    made = plan(cluster(3, one, two), make_policies(), NOW)
    assert sizes(made) == [("one", 1, 2)]


def test_only_tolerated_nodes_count():
    """A NoSchedule taint keeps a job off a node (kueue 6868), a toleration lets it on."""
    taint = Taint("gpu", "only", "NoSchedule")
    nodes = [make_node("n00"), make_node("n01", taints=(taint,))]
    workload, pods = running("a", ["n00"])
    assert sizes(plan(make_snapshot(nodes, pods, [workload]), make_policies(), NOW)) == []
    tolerant = make_shape(tolerations=(Toleration("gpu", "Exists", "", ""),))
    workload = dataclasses.replace(workload, shape=tolerant)
    made = plan(make_snapshot(nodes, pods, [workload]), make_policies(), NOW)
    assert sizes(made) == [("a", 1, 2)]


def test_replicas_of_several_pods_need_all_their_places():
    workload = make_workload("a", granted=1, shape=make_shape(pods_per_replica=2))
    pods = [
        make_pod(f"a-{i}", node=f"n0{i}", workload=workload.key, replica_index=0, priority=100)
        for i in range(2)
    ]
    for nodes, want in ((3, []), (4, [("a", 1, 2)]), (7, [("a", 1, 3)])):
        made = plan(make_snapshot(make_nodes(nodes), pods, [workload]), make_policies(), NOW)
        assert sizes(made) == want
