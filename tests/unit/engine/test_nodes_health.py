"""Nodes that get nothing new, pods that hang, and which pods leave first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.nodes_health import (
    Leaving,
    avoided,
    causes_of,
    leaving_first,
    next_change,
    next_overdue,
    overdue,
)
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.snapshot import Departure, NodeHistory
from controlplane.engine.types import PodPhase
from tests.builders import GPU, NOW, make_node, make_nodes, make_pod

POLICY = ClusterPolicy()
HOUR = 3600.0
INTERRUPTION = Departure("interruption", None, "taint aws-node-termination-handler/spot-itn")


def maintenance(in_s):
    return Departure("maintenance", NOW + in_s, "annotation maintenance")


@pytest.mark.parametrize(
    ("departure", "faults_ago", "want", "change"),
    [
        (None, (), None, None),
        (INTERRUPTION, (), ReasonCode.NODE_DEPARTS, None),
        (maintenance(HOUR), (), ReasonCode.NODE_DEPARTS, None),
        (maintenance(-60), (), ReasonCode.NODE_DEPARTS, None),
        (maintenance(HOUR + 1), (), None, 1),
        (None, (HOUR,), None, None),
        (None, (3 * HOUR, 2 * HOUR), None, None),
        (None, (3 * HOUR, 2 * HOUR, HOUR), ReasonCode.REPEAT_OFFENDER, 3 * HOUR),
        # the window lies before the last fault, the rest after it
        (None, (24.5 * HOUR, 2 * HOUR, HOUR), ReasonCode.REPEAT_OFFENDER, 3 * HOUR),
        (None, (25.5 * HOUR, 2 * HOUR, HOUR), None, None),
        (None, (6 * HOUR, 5 * HOUR, 4 * HOUR), None, None),
        (None, (6 * HOUR, 5 * HOUR, 4 * HOUR - 1), ReasonCode.REPEAT_OFFENDER, 1),
        # a fault that hasn't happened
        (None, (3 * HOUR, 2 * HOUR, -60), None, None),
        # a departure says more than an offence
        (INTERRUPTION, (3, 2, 1), ReasonCode.NODE_DEPARTS, 4 * HOUR - 1),
    ],
)
def test_avoided(departure, faults_ago, want, change):
    nodes = (make_node("n0", departure=departure), make_node("n1"))
    history = {"n0": NodeHistory(tuple(NOW - ago for ago in faults_ago))}
    found = avoided(nodes, history, POLICY, NOW)
    assert {name: reason.code for name, reason in found.items()} == ({"n0": want} if want else {})
    at = next_change(nodes, history, POLICY, NOW)
    assert at == (None if change is None else NOW + change)


def test_the_reasons_carry_their_numbers():
    nodes = (make_node("n0", departure=maintenance(60)), make_node("n1"))
    faults = {"n1": NodeHistory((NOW - 300, NOW - 200, NOW - 100))}
    found = avoided(nodes, faults, POLICY, NOW)
    assert found["n0"].sentence == (
        "Leaves (maintenance, by annotation maintenance); nothing new goes there and its replicas "
        "go first."
    )
    assert found["n1"].numbers == {"faults": 3, "window_s": 86_400.0, "rest_s": 14_300.0}


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        ({"offender_faults": 0}, []),
        ({"offender_faults": 1}, ["n0"]),
        ({"offender_faults": 1, "offender_rest_s": 60.0}, []),
        ({"offender_faults": 2}, []),
    ],
)
def test_the_policy_says_what_an_offender_is(policy, want):
    history = {"n0": NodeHistory((NOW - 100,)), "gone": NodeHistory((NOW - 3, NOW - 2, NOW - 1))}
    nodes = (make_node("n0"), make_node("n1"))
    assert list(avoided(nodes, history, ClusterPolicy(**policy), NOW)) == want


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"deletion_due": None}, None),
        ({"deletion_due": NOW + 30}, None),
        ({"deletion_due": NOW - 299}, None),
        ({"deletion_due": NOW - 300}, 300.0),
        ({"deletion_due": NOW - 4000}, 4000.0),
        # what holds nothing hangs in nobody's way
        ({"deletion_due": NOW - 4000, "requests": {"cpu": 100}}, None),
        ({"deletion_due": NOW - 4000, "phase": PodPhase.FAILED}, None),
        ({"deletion_due": NOW - 4000, "node": None}, None),
    ],
)
def test_overdue(fields, want):
    pods = [make_pod("b", **{"node": "n1", "deleting": True, **fields}), make_pod("c", node="n2")]
    found = overdue(pods, POLICY, NOW)
    assert [notice.subject for notice in found] == ([] if want is None else ["Pod/ml/b"])
    if want is not None:
        assert found[0].reason.code is ReasonCode.HANGS_TERMINATING
        assert found[0].reason.numbers == {
            "late_s": want, "accelerators": 8, "resource": GPU, "node": "n1",
        }  # fmt: skip


def test_notices_come_in_order_of_names_and_at_their_time():
    leaving = [
        make_pod(name, node="n0", deleting=True, deletion_due=NOW - late)
        for name, late in (("c", 310.0), ("a", 305.0), ("b", 100.0), ("d", 20.0))
    ]
    assert [notice.subject for notice in overdue(leaving, POLICY, NOW)] == ["Pod/ml/a", "Pod/ml/c"]
    assert next_overdue(leaving, POLICY, NOW) == NOW + 200
    assert next_overdue([make_pod("e", node="n0")], POLICY, NOW) is None


@pytest.mark.parametrize(
    ("fields", "faults", "want"),
    [
        ({}, 0, Leaving.NO_CAUSE),
        ({"ready": False}, 0, Leaving.NODE_NOT_READY),
        ({"departure": INTERRUPTION}, 0, Leaving.NODE_DEPARTS),
        ({"departure": maintenance(2 * HOUR)}, 0, Leaving.NO_CAUSE),
        ({"unschedulable": True}, 0, Leaving.NODE_CORDONED),
        ({"unhealthy": {GPU: 1}}, 0, Leaving.DEVICE_UNHEALTHY),
        ({"unhealthy": {GPU: 0}}, 0, Leaving.NO_CAUSE),
        ({}, 3, Leaving.NODE_OFFENDS),
        # the strongest of several
        ({"ready": False, "unschedulable": True, "departure": INTERRUPTION}, 3,
         Leaving.NODE_NOT_READY),
        ({"unschedulable": True, "unhealthy": {GPU: 2}}, 3, Leaving.NODE_CORDONED),
    ],
)  # fmt: skip
def test_the_cause_to_leave_first(fields, faults, want):
    node = make_node("n0", **fields)
    history = {"n0": NodeHistory((NOW - 1,) * faults)}
    causes = causes_of([node], avoided([node], history, POLICY, NOW))
    assert leaving_first(make_pod(node="n0"), causes) is want


@pytest.mark.parametrize(
    ("node", "want"), [(None, Leaving.NO_CAUSE), ("removed", Leaving.NODE_GONE)]
)
def test_a_pod_without_a_node_or_on_one_that_is_gone(node, want):
    assert leaving_first(make_pod(node=node), causes_of(make_nodes(1), {})) is want


def test_causes_are_ranked():
    assert sorted(Leaving) == [
        Leaving.NODE_GONE,
        Leaving.NODE_NOT_READY,
        Leaving.NODE_DEPARTS,
        Leaving.NODE_CORDONED,
        Leaving.DEVICE_UNHEALTHY,
        Leaving.NODE_OFFENDS,
        Leaving.NO_CAUSE,
    ]


@given(
    st.lists(st.integers(-7 * 86_400, 3600), max_size=6),
    st.none() | st.integers(-7200, 14_400),
)
def test_nothing_changes_before_the_next_change(faults, departs_in):
    departure = None if departs_in is None else maintenance(departs_in)
    nodes = (make_node("n0", departure=departure),)
    # what is still to come isn't known
    history = {"n0": NodeHistory(tuple(sorted(NOW + at for at in faults if at <= 0)))}
    now = {name: why.code for name, why in avoided(nodes, history, POLICY, NOW).items()}
    change = next_change(nodes, history, POLICY, NOW)
    for at in (NOW + 7 * 86_400,) if change is None else (change - 0.01,):
        later = avoided(nodes, history, POLICY, at)
        assert {name: why.code for name, why in later.items()} == now
