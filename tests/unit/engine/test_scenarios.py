"""What was reported from the field about decisions, each with the rest of its kind.

Held here unless another place is named; a case may be held in several.

| report | held in |
|---|---|
| kueue 11977 grows past a full quota | here, test_quota |
| kueue 13117 finished replicas | test_accounting, test_hard_cases |
| kueue 9329 equal totals, other groups | here |
| kueue 6384 freed capacity wakes the queue | here |
| kueue 6969 scale-up preempts | here, test_hard_cases (inelastic) |
| kueue 3151 its own size after an eviction | here |
| ray 48909 two requests of +1 | test_plan |
| kueue 840 the newest borrower | here, test_quota |
| volcano 2627 min 1 of 4 | here, test_plan |
| kueue 1309 one node whole | here, test_plan |
| kuberay 208 the named first | here |
| mpi-operator 410 the draining node first | here |
| kueue 3779 two borrowers settle | here, test_quota |
| volcano 3869 equals don't reclaim | here, test_plan |
| ray 50783 a gang that forms is held | here, test_hard_cases |
| autoscaler 7956 booting | here |
| kueue 9715 a blocked head | test_plan, test_hard_cases |
| KAI 2075 never bound | here, test_damping |
| volcano 3373 two gangs | here, test_plan |
| volcano 1425 types of accelerators | here, test_plan |
| KAI 2064 within its nominal quota | here, test_quota |
| kueue 6868 taints | test_plan |
| kueue 9616 a taint after the decision | here |
| kueue 14570 the same accelerators twice | here, test_plan, test_quota |
| volcano 5911 free by device | here |
| KAI 1880, 1930, 422 effective requests, claims, MIG | tests/unit/cluster |
| kueue 14811 a reservation that stays | here |
| dlrover 1175 one stays pending | test_hard_cases |
| trainer 1593 removed pods that failed | here |
| skypilot 9840 never above the total | test_accounting |
"""

from __future__ import annotations

import dataclasses

import pytest

from controlplane.engine.commands import CommandKind
from controlplane.engine.plan import plan
from controlplane.engine.queues import QueuePolicy, Quota
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.snapshot import History, ReplicaShape
from controlplane.engine.types import PodPhase, ReclaimPolicy, VictimChoice
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
    make_workload,
)
from tests.scenario_kit import (
    NAMES,
    cluster,
    drive,
    granted,
    queue,
    rules,
    running,
    sizes,
    suspended,
    waiting,
    waits_for,
    why,
)

# -- elastic accounting ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queues", "want"),
    [
        ([queue("q", 16)], []),
        ([queue("q", 23)], []),
        ([queue("q", 24)], [("a", 2, 3)]),
        ([queue("q", 16, cohort="c"), queue("other", 8, cohort="c")], [("a", 2, 3)]),
        ([queue("q", 16, 0, cohort="c"), queue("other", 8, cohort="c")], []),
        ([queue("q", 16, cohort="c"), queue("other", 8, None, 0, cohort="c")], []),
    ],
)
def test_kueue_11977_growth_stays_within_the_quota(queues, want):
    made = plan(cluster(4, running("a", NAMES[:2], queue="q")), rules(queues=queues), NOW)
    assert sizes(made) == want
    if not want:
        assert why(made, "a") is ReasonCode.QUOTA_EXHAUSTED


def test_kueue_11977_every_accelerator_of_a_replica_counts():
    amounts = {GPU: 8, "example.com/hca": 2, "cpu": 128_000}
    nodes = make_nodes(4, allocatable=amounts, capacity=amounts)
    job = running("a", ["n00"], queue="q", shape=ReplicaShape(1, {GPU: 4, "example.com/hca": 1}))
    quotas = {GPU: Quota(64), "example.com/hca": Quota(2)}
    made = plan(cluster(nodes, job), rules(queues=[QueuePolicy("q", quotas=quotas)]), NOW)
    assert sizes(made) == [("a", 1, 2)]


@pytest.mark.parametrize("policy", ["elastic", "two"])
def test_kueue_11977_a_suspended_job_holds_nothing_of_the_quota(policy):
    """Its size stays written in it."""
    policies = rules(make_policy(), make_policy("two", min_replicas=2), queues=[queue("q", 16)])
    made = plan(cluster(4, suspended("a", 2, queue="q", policy=policy)), policies, NOW)
    assert [(c.kind, c.to_replicas) for c in made.commands] == [
        (CommandKind.ADMIT, 2 if policy == "two" else 1)
    ]


def test_kueue_11977_what_is_granted_and_lost_counts_once():
    """Of the minimum of 3 one is granted already, though its pod is gone."""
    policies = rules(make_policy(min_replicas=3), queues=[queue("q", 24)])
    made = plan(cluster(4, running("a", [None], queue="q")), policies, NOW)
    assert sizes(made) == [("a", 1, 3)]


def test_kueue_9329_equal_totals_of_other_groups_are_a_change():
    """A2, B2 become A3, B1: B's pod leaves, and A waits for its place."""
    a, pods = running("a", ["n00", "n01"])
    b, others = running("b", ["n02", "n03"])
    changed = [
        (dataclasses.replace(a, granted=3), pods),
        (dataclasses.replace(b, granted=1), others),
    ]
    made = plan(cluster(4, *changed), rules(), NOW)
    assert sizes(made) == []
    assert waits_for(made, "a") is ReasonCode.WAITS_FOR_RELEASE


def test_kueue_6384_what_a_shrink_frees_starts_the_next_job_at_once():
    policies = rules(make_policy(max_replicas=2), make_policy("gang", min_replicas=2))
    shrinking = running("a", NAMES[:4])
    snapshot = cluster(4, shrinking, suspended("b", 2, policy="gang"))
    assert drive(snapshot, policies, 8)[0] == [[("a", 4, 2)], [("b", 2, 2)]]


def test_kueue_6969_a_minimum_that_was_raised_is_reclaimed():
    policies = rules(make_policy(), make_policy("four", min_replicas=4))
    high = running("high", NAMES[:2], policy="four", priority=200)
    snapshot = cluster(8, running("low", NAMES[2:8]), high)
    assert drive(snapshot, policies, 8)[0] == [[("low", 6, 4)], [("high", 2, 4)]]


def test_kueue_3151_after_an_eviction_a_job_comes_back_to_its_own_size():
    """Admitted with less, preempted, and grown again once there is room: to its maximum."""
    policies = rules(make_policy(min_replicas=2, max_replicas=4),
                     preemption={"whole": ReclaimPolicy.PREEMPT_WHOLE})  # fmt: skip
    low = running("low", NAMES[:2])
    urgent = waiting("web", 2, priority_class="whole")
    snapshot = cluster(2, low, pods=urgent)
    found, after = drive(snapshot, policies, 8)
    assert found == [[("low", 2, 0)]]
    free = dataclasses.replace(after, pods=(), nodes=make_nodes(5))
    found, after = drive(dataclasses.replace(free, taken_at=NOW), policies, 8)
    assert found == [[("low", 2, 2)], [("low", 2, 4)]]
    assert granted(after) == {"low": 4}


# -- victims and cost ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "want"),
    [
        ({}, [("new", 2, 1)]),
        ({make_key("old"): History(last_resize_at=NOW - 10)}, [("old", 4, 3)]),
    ],
)
def test_kueue_840_the_newest_borrower_gives(history, want):
    """Queue b owns 40 and holds 48. What came last, a job or a growth, is what is borrowed."""
    queues = [queue("a", 8, cohort="c"), queue("b", 40, cohort="c")]
    old = running("old", NAMES[:4], queue="b", created_at=NOW - 9000)
    new = running("new", NAMES[4:6], queue="b", created_at=NOW - 100)
    made = plan(
        cluster(6, old, new, suspended("own", queue="a"), history=history),
        rules(queues=queues), NOW,
    )  # fmt: skip
    assert sizes(made) == want
    assert made.commands[0].reason.code is ReasonCode.SHRINKS_TO_QUOTA


def test_kueue_840_what_is_the_queues_own_stays():
    """It borrows 8 and 24 are asked for: the owner gets its 8 back, and no more."""
    queues = [queue("a", 8, cohort="c"), queue("b", 24, cohort="c")]
    policies = rules(make_policy(), make_policy("three", min_replicas=3), queues=queues)
    snapshot = cluster(
        4, running("b", NAMES[:4], queue="b"), suspended("a", queue="a", policy="three")
    )
    assert sizes(plan(snapshot, policies, NOW)) == []


@pytest.mark.parametrize(("low", "want"), [(1, 3), (2, 2), (3, 1)])
def test_volcano_2627_a_start_takes_its_minimum_and_no_more(low, want):
    policies = rules(make_policy(), make_policy("high", min_replicas=low, max_replicas=4))
    snapshot = cluster(
        4, running("low", NAMES[:4]), suspended("high", 4, policy="high", priority=200)
    )
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == [("low", 4, want)]
    assert why(made, "high") is ReasonCode.RECLAIMS


def test_kueue_1309_a_gang_of_two_gets_two_whole_nodes():
    """Halves lie on n00 to n03 beside others that stay; n04 to n06 can be freed whole."""
    half = make_workload("half", granted=4, shape=make_shape(4), priority=10)
    beside = [make_pod(f"x{i}", gpus=4, node=NAMES[i]) for i in range(4)]
    whole = running("whole", NAMES[4:7], priority=50)
    gang = suspended("gang", 2, policy="two", priority=200)
    snapshot = cluster(7, (half, make_replicas(half, NAMES[:4])), whole, gang, pods=beside)
    made = plan(snapshot, rules(make_policy(), make_policy("two", min_replicas=2)), NOW)
    assert sizes(made) == [("whole", 3, 1)]


def test_kueue_1309_named_victims_free_one_node():
    """Replicas of 4 lie on n00 and n01 in turn: two of them are a node, not three."""
    job = make_workload("a", granted=4, shape=make_shape(4), victims=VictimChoice.NAMED)
    pods = make_replicas(job, ["n00", "n01", "n00", "n01"])
    made = plan(cluster(2, (job, pods), pods=waiting("web")), rules(), NOW)
    assert sizes(made) == [("a", 4, 2)]
    assert len({p.node for p in pods if p.name in made.commands[0].victims}) == 1


@pytest.mark.parametrize(
    ("dead", "want"),
    [(None, ("a-1", "a-3")), ("a-2", ("a-1",))],
)
def test_kuberay_208_the_pod_that_was_named_leaves_first(dead, want):
    """The job names a-1. Another pod that dies by itself takes no healthy one with it."""
    job, pods = running("a", NAMES[:4], victims=VictimChoice.NAMED, hints=("a-1",))
    pods = [
        dataclasses.replace(p, phase=PodPhase.FAILED, ready=False) if p.name == dead else p
        for p in pods
    ]
    made = plan(cluster(4, (job, pods)), rules(make_policy(max_replicas=2)), NOW)
    assert sizes(made) == [("a", 4, 2)]
    assert made.commands[0].victims == want


@pytest.mark.parametrize(
    ("trouble", "victims", "want"),
    [
        ({"unschedulable": True}, VictimChoice.NAMED, ("a-1",)),
        ({"ready": False}, VictimChoice.NAMED, ("a-1",)),
        ({"unhealthy": {GPU: 1}}, VictimChoice.NAMED, ("a-1",)),
        ({}, VictimChoice.NAMED, ("a-2",)),
        ({"unschedulable": True}, VictimChoice.HIGHEST_INDEX, ("a-2",)),
    ],
)
def test_mpi_operator_410_the_replica_on_the_draining_node_leaves_first(trouble, victims, want):
    """Where victims can be named; an Indexed Job gives up its highest index (KEP-3715)."""
    job = running("a", NAMES[:3], victims=victims)
    nodes = [make_node("n00"), make_node("n01", **trouble), make_node("n02")]
    made = plan(cluster(nodes, job), rules(make_policy(max_replicas=2)), NOW)
    assert made.commands[0].victims == want


def test_mpi_operator_410_a_named_replica_that_does_not_run_is_the_one_to_give_up():
    """After the fault time-out it goes, wherever it stands in line."""
    job, pods = running("a", NAMES[:3], victims=VictimChoice.NAMED)
    pods = [dataclasses.replace(pods[0], ready=False), *pods[1:]]
    snapshot = cluster(3, (job, pods), history={job.key: History(short_since=NOW - 900)})
    made = plan(snapshot, rules(), NOW)
    assert sizes(made) == [("a", 3, 2)]
    assert made.commands[0].victims == ("a-0",)


# -- whole jobs ------------------------------------------------------------------------------

WHOLE = {"whole": ReclaimPolicy.PREEMPT_WHOLE, "never": ReclaimPolicy.NEVER}


@pytest.mark.parametrize(
    ("pods", "class_", "want"),
    [
        (1, "whole", [("b", 4, 3)]),  # elastic surplus first, of the lowest priority
        (3, "whole", [("a", 2, 1), ("b", 4, 2)]),  # then that of the next
        (4, "whole", [("a", 2, 1), ("b", 4, 0)]),  # then whole jobs, the lowest first
        (6, "whole", [("a", 2, 0), ("b", 4, 0)]),
        (4, "elastic", [("a", 2, 1), ("b", 4, 2)]),
        (1, "never", []),
    ],
)
def test_whole_jobs_go_only_after_all_elastic_surplus(pods, class_, want):
    """b of priority 50 has 4 of at least 2, a of priority 100 has 2 of at least 1."""
    policies = rules(make_policy(), make_policy("two", min_replicas=2), preemption=WHOLE)
    a, b = running("a", NAMES[:2]), running("b", NAMES[2:6], policy="two", priority=50)
    snapshot = cluster(6, a, b, pods=waiting("web", pods, priority_class=class_))
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == want
    for command in made.commands:
        gone = command.to_replicas == 0
        assert command.kind is (CommandKind.SUSPEND if gone else CommandKind.RESIZE)
        assert command.reason.code is (
            ReasonCode.PREEMPTED if gone else ReasonCode.SHRINKS_FOR_PRIORITY
        )
        assert len(command.victims) == command.from_replicas - command.to_replicas


def test_equal_priority_is_never_preempted_whole():
    snapshot = cluster(
        1, running("a", ["n00"]), pods=waiting("web", priority=100, priority_class="whole")
    )
    assert sizes(plan(snapshot, rules(preemption=WHOLE), NOW)) == []


def test_a_suspension_under_way_is_waited_for():
    """Its places come free; it isn't started again, and nobody else is suspended."""
    low, pods = running("low", ["n00"], priority=50)
    flight = make_flight(low, 0, state="applying")
    other = running("other", ["n01"], priority=60)
    web = waiting("web", priority_class="whole")
    snapshot = cluster(2, (low, pods), other, pods=web, in_flight=[flight])
    made = plan(snapshot, rules(preemption=WHOLE), NOW)
    assert sizes(made) == []
    assert why(made, "low") is ReasonCode.IN_FLIGHT
    assert waits_for(made, "web") is ReasonCode.WAITS_FOR_RELEASE


@pytest.mark.parametrize("uid", ["uid-low", "another"])
def test_a_command_names_the_object_that_it_was_decided_for(uid):
    """A job that was deleted and made anew under its name isn't touched by an old command."""
    low, pods = running("low", NAMES[:2])
    (command,) = plan(cluster(2, (low, pods), pods=waiting("web")), rules(), NOW).commands
    assert (command.uid, command.precondition) == ("uid-low", "1")
    refused = still_valid(command, cluster(2, (dataclasses.replace(low, uid=uid), pods)), NOW)
    assert (refused is None) == (uid == "uid-low")


@pytest.mark.parametrize(
    ("ratio", "want"), [(1.0, 1), (0.9, 1), (0.7, 3), (0.5, 5), (0.25, 8), (0.05, 9)]
)
def test_one_cycle_takes_at_most_the_disruption_ratio_of_a_job(ratio, want):
    """Of 10 replicas, and 10 pods wait. Rounded down, exactly; but at least one may go."""
    snapshot = cluster(10, running("a", NAMES[:10]), pods=waiting("web", 10))
    made = plan(snapshot, rules(make_policy(max_replicas=10), max_disruption_ratio=ratio), NOW)
    assert sizes(made) == [("a", 10, want)]


def test_the_disruption_ratio_binds_a_call_back_of_quota_too():
    queues = [queue("b", 0, cohort="c"), queue("o", 64, cohort="c")]
    policies = rules(
        make_policy(), make_policy("four", min_replicas=4), queues=queues, max_disruption_ratio=0.25
    )
    snapshot = cluster(
        8, running("b", NAMES[:8], queue="b"), suspended("o", queue="o", policy="four")
    )
    first = plan(snapshot, policies, NOW)
    assert all(before - after <= 2 for _, before, after in sizes(first))


def test_a_gang_that_needs_more_than_the_disruption_ratio_allows_takes_nothing_and_says_why():
    """Bit by bit over several cycles would leave places idle, and jobs short, for a gang that may
    never be whole."""
    policies = rules(
        make_policy(), make_policy("four", min_replicas=4, max_replicas=4),
        max_disruption_ratio=0.25,
    )  # fmt: skip
    snapshot = cluster(
        8, running("low", NAMES[:8]), suspended("gang", 4, policy="four", priority=500)
    )
    made = plan(snapshot, policies, NOW)
    assert sizes(made) == []
    (waits,) = made.pending
    assert [(r.candidate, r.reason.code) for r in waits.rejected] == [
        ("Job/ml/low", ReasonCode.DISRUPTION_BOUND)
    ]


def test_a_disruption_ratio_that_never_lets_a_job_go_takes_nothing_or_lets_it_go_in_the_end():
    """A class that preempts whole jobs, and one that can only fall to half in each cycle."""
    low = make_workload("low", granted=2, shape=make_shape(1))
    snapshot = cluster(
        1, (low, make_replicas(low, ["n00"] * 2)), pods=waiting("web", priority_class="whole")
    )
    policies = rules(make_policy(max_replicas=2), preemption=WHOLE, max_disruption_ratio=0.5)
    found, _ = drive(snapshot, policies, 12)
    assert found in ([], [[("low", 2, 1)], [("low", 1, 0)]])


def test_no_job_is_suspended_for_one_pod_when_the_next_pod_frees_enough_for_both():
    """Freeing n00 costs least for the first pod; the second needs the gang of three anyway."""
    policies = rules(
        make_policy(max_replicas=1), make_policy("three", min_replicas=3), preemption=WHOLE
    )
    low = make_workload("low", granted=1, shape=make_shape(4))
    gang = running("gang", NAMES[1:4], policy="three")
    snapshot = cluster(
        4, (low, make_replicas(low, ["n00"])), gang, pods=waiting("web", 2, priority_class="whole")
    )
    assert sizes(plan(snapshot, policies, NOW)) == [("gang", 3, 0)]
