"""Every accelerator of every node is in exactly one state, and the states add up."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.accounting import Holder, account
from controlplane.engine.types import PodPhase, Taint, Toleration
from tests.builders import (
    GPU,
    make_key,
    make_node,
    make_pod,
    make_replicas,
    make_shape,
    make_snapshot,
    make_workload,
)

TAINT = Taint("dedicated", "", "NoSchedule")
LESS = {GPU: 7, "cpu": 1000}


@pytest.mark.parametrize(
    ("node", "pods", "want"),
    [
        ({}, [], {"free": 8}),
        ({}, [{"gpus": 3}], {"used": 3, "free": 5}),
        ({}, [{"gpus": 3, "deleting": True}], {"terminating": 3, "free": 5}),
        ({}, [{"gpus": 3, "phase": PodPhase.SUCCEEDED}], {"free": 8}),
        ({}, [{"gpus": 3, "phase": PodPhase.FAILED}], {"free": 8}),
        ({}, [{"gpus": 3, "phase": PodPhase.PENDING}], {"used": 3, "free": 5}),
        ({"unschedulable": True}, [{"gpus": 3}], {"used": 3, "cordoned": 5}),
        ({"ready": False}, [{"gpus": 3}], {"used_unhealthy": 3, "not_ready": 5}),
        ({"taints": (TAINT,)}, [{"gpus": 3}], {"used": 3, "tainted": 5}),
        ({"taints": (Taint("x", "", "PreferNoSchedule"),)}, [], {"free": 8}),
        ({"capacity": {}, "allocatable": {}, "expects": {GPU: 8}}, [], {"booting": 8}),
        ({"allocatable": LESS}, [{"gpus": 4}], {"used": 4, "free": 3, "not_ready": 1}),
        ({"allocatable": LESS}, [{"gpus": 8}], {"used": 7, "used_unhealthy": 1}),
        ({"capacity": LESS, "allocatable": LESS}, [{"gpus": 8}], {"used": 7, "used_unhealthy": 1}),
    ],
)  # fmt: skip
def test_states_of_one_node(node, pods, want):
    found = [make_pod(f"p{i}", node="n0", **fields) for i, fields in enumerate(pods)]
    totals = account(make_snapshot([make_node("n0", **node)], found)).totals
    assert totals == {GPU: want}


def test_a_nominated_pod_reserves_its_place():
    snapshot = make_snapshot([make_node("n0")], [make_pod(nominated_node="n0", gpus=2)])
    assert account(snapshot).totals[GPU] == {"free": 6, "reserved": 2}


def test_granted_and_not_visible_yet_is_reserved():
    job = make_workload("a", granted=3, shape=make_shape(4))
    snapshot = make_snapshot([make_node("n0"), make_node("n1")], make_replicas(job, ["n0"]), [job])
    assert account(snapshot).totals[GPU] == {"used": 4, "reserved": 8, "free": 4}


def test_starting_pods_never_exceed_the_total():
    """280 of 256 (skypilot 9840): what waits for a node is held by nobody."""
    waiting = [make_pod(f"p{i}", gpus=8) for i in range(3)]
    assert account(make_snapshot([make_node("n0")], waiting)).totals[GPU] == {"free": 8}


def test_a_taint_that_a_managed_workload_tolerates_is_open():
    shape = make_shape(1, tolerations=(Toleration("dedicated", "Exists", "", ""),))
    job = make_workload("a", granted=0, shape=shape)
    snapshot = make_snapshot([make_node("n0", taints=(TAINT,))], [], [job])
    assert account(snapshot).totals[GPU] == {"free": 8}


def test_finished_replicas_hold_nothing():
    """20 pods, 15 finished, shrunk to 10: 5 are held (kueue 13117)."""
    job = make_workload("a", granted=10, shape=make_shape(1))
    pods = make_replicas(job, ["n0"] * 10)
    done = [dataclasses.replace(p, phase=PodPhase.SUCCEEDED) for p in pods[:5]]
    found = account(make_snapshot([make_node("n0", gpus=64)], [*done, *pods[5:]], [job]))
    assert found.totals[GPU]["used"] == 5
    assert found.holders[GPU] == {Holder("ml", make_key("a")): 5}


def test_kinds_of_accelerators_are_never_added_up():
    both = {GPU: 4, "amd.com/gpu": 2, "cpu": 64_000}
    node = make_node("n0", capacity=both, allocatable=both)
    assert account(make_snapshot([node])).totals == {GPU: {"free": 4}, "amd.com/gpu": {"free": 2}}


@st.composite
def snapshots(draw):
    nodes = [
        make_node(
            f"n{i}",
            gpus=(capacity := draw(st.integers(0, 8))),
            allocatable={GPU: draw(st.integers(0, capacity)), "cpu": 9000},
            ready=draw(st.booleans()),
            unschedulable=draw(st.booleans()),
            taints=draw(st.sampled_from([(), (TAINT,)])),
            expects=draw(st.sampled_from([{}, {GPU: 8}])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    pods = [
        make_pod(
            f"p{i}",
            gpus=draw(st.integers(0, 8)),
            node=draw(st.sampled_from([None, "gone", *(n.name for n in nodes)])),
            deleting=draw(st.booleans()),
            phase=draw(st.sampled_from(list(PodPhase))),
        )
        for i in range(draw(st.integers(0, 8)))
    ]
    jobs = [
        make_workload(f"j{i}", granted=draw(st.integers(0, 4)), shape=make_shape(2))
        for i in range(draw(st.integers(0, 2)))
    ]
    return make_snapshot(nodes, pods, jobs)


@given(snapshots())
def test_states_add_up_for_every_node_and_in_every_sum(snapshot):
    found = account(snapshot)
    for node in snapshot.nodes:
        for resource, states in found.nodes[node.name].items():
            assert all(n > 0 for n in states.values())
            held = sum(
                p.requests.get(resource, 0)
                for p in snapshot.pods
                if p.node == node.name and p.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)
            )
            there = max(node.capacity.get(resource, 0), held)
            booting = max(0, node.expects.get(resource, 0) - node.capacity.get(resource, 0))
            assert sum(states.values()) == there + booting
            assert found.capacity[node.name][resource] == there + booting
    total = sum(sum(s.values()) for states in found.nodes.values() for s in states.values())
    assert sum(sum(states.values()) for states in found.totals.values()) == total
    by_pool = [s for pool in found.pools.values() for s in pool.values()]
    assert sum(sum(states.values()) for states in by_pool) == total
    held = sum(
        states.get(name, 0)
        for states in found.totals.values()
        for name in ("used", "used_unhealthy", "terminating")
    )
    assert sum(n for held_by in found.holders.values() for n in held_by.values()) == held
