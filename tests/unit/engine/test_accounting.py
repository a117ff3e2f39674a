"""Every accelerator of every node is in exactly one state, and the states add up."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.accounting import (
    Accounting,
    Books,
    CapacityState,
    Difference,
    Holder,
    account,
    differences,
    node_states,
    reservations,
    takers,
)
from controlplane.engine.plan import plan
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.shapes import shape_of
from controlplane.engine.snapshot import Departure
from controlplane.engine.types import PodPhase, Requirement, Taint, Toleration
from tests.builders import (
    GPU,
    NOW,
    make_flight,
    make_key,
    make_node,
    make_pod,
    make_policies,
    make_policy,
    make_replicas,
    make_shape,
    make_snapshot,
    make_workload,
)

TAINT = Taint("dedicated", "", "NoSchedule")
LESS = {GPU: 7, "cpu": 1000}
TOLERANT = shape_of(make_shape(1, tolerations=(Toleration("dedicated", "Exists", "", ""),)))


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
        # pods that leave a node which isn't ready, or whose devices shrank
        ({"ready": False}, [{"gpus": 3, "deleting": True}], {"terminating": 3, "not_ready": 5}),
        ({"ready": False}, [{"gpus": 3, "deleting": True}, {"gpus": 2}],
         {"terminating": 3, "used_unhealthy": 2, "not_ready": 3}),
        ({"allocatable": {GPU: 2}}, [{"gpus": 4, "deleting": True}, {"gpus": 4}],
         {"terminating": 4, "used_unhealthy": 4}),
        ({"allocatable": {GPU: 2}}, [{"gpus": 4, "deleting": True}, {"gpus": 1}],
         {"terminating": 4, "used_unhealthy": 1, "not_ready": 3}),
        ({"allocatable": {}}, [{"gpus": 8}], {"used_unhealthy": 8}),
        ({"capacity": {}, "allocatable": {}}, [{"gpus": 8}], {"used_unhealthy": 8}),
        # what is expected is there already, under pods that outlived their device plugin
        ({"capacity": {}, "allocatable": {}, "expects": {GPU: 8}}, [{"gpus": 6}],
         {"used_unhealthy": 6, "booting": 2}),
        ({"capacity": {}, "allocatable": {}, "expects": {GPU: 8}, "ready": False}, [],
         {"not_ready": 8}),
        ({"unschedulable": True, "allocatable": LESS}, [], {"cordoned": 7, "not_ready": 1}),
        # announced to leave: Kubernetes takes pods there all the same
        ({"departure": Departure("maintenance", NOW, "")}, [{"gpus": 3}], {"used": 3, "free": 5}),
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


@pytest.mark.parametrize(
    ("node", "want"),
    [
        ({"unschedulable": True}, {"cordoned": 8}),
        ({"ready": False}, {"not_ready": 8}),
        ({"allocatable": {GPU: 1}}, {"reserved": 1, "not_ready": 7}),
    ],
)
def test_nothing_is_kept_where_no_pod_can_come(node, want):
    snapshot = make_snapshot([make_node("n0", **node)], [make_pod(nominated_node="n0", gpus=2)])
    assert account(snapshot).totals[GPU] == want


@pytest.mark.parametrize(
    ("node", "pods", "want"),
    [
        ({}, [], {"cordoned": 8}),
        ({}, [{"gpus": 3}], {"used": 3, "cordoned": 5}),
        ({}, [{"gpus": 3, "node": None, "nominated_node": "n0"}], {"reserved": 3, "cordoned": 5}),
        ({"ready": False}, [], {"not_ready": 8}),
        ({"taints": (TAINT,)}, [], {"cordoned": 8}),
    ],
)
def test_what_is_empty_is_cordoned_where_we_give_nothing_new(node, pods, want):
    found = [make_pod(f"p{i}", **{"node": "n0", **fields}) for i, fields in enumerate(pods)]
    snapshot = make_snapshot([make_node("n0", **node)], found)
    assert account(snapshot, closed=["n0", "gone"]).totals[GPU] == want


def test_what_was_granted_is_not_kept_where_we_give_nothing_new():
    job = make_workload("a", granted=1)
    snapshot = make_snapshot([make_node("n0"), make_node("n1")], [], [job])
    assert account(snapshot, closed=["n0"]).nodes == {
        "n0": {GPU: {"cordoned": 8}},
        "n1": {GPU: {"reserved": 8}},
    }


@pytest.mark.parametrize(
    ("job", "flight", "want"),
    [
        ({"granted": 1}, None, 8),
        ({"granted": 1}, 3, 24),  # what a command grants counts already
        ({"granted": 3}, 1, 8),
        ({"granted": 3}, 0, 0),  # it is being suspended
        ({"granted": 1, "policy": None}, None, 0),
        ({"granted": 1, "policy": None}, 1, 8),
        ({"granted": 1, "suspended": True}, None, 0),
        ({"granted": 1, "finished": True}, None, 0),
        ({"granted": 1, "managed": False}, None, 0),
    ],
)
def test_what_is_reserved(job, flight, want):
    workload = make_workload("a", **job)
    flights = [] if flight is None else [make_flight(workload, flight)]
    nodes = [make_node(f"n{i}") for i in range(4)]
    snapshot = make_snapshot(nodes, [], [workload], in_flight=flights)
    assert account(snapshot).totals[GPU].get("reserved", 0) == want


def test_pods_without_an_index_are_not_missing():
    job = make_workload("a", granted=2)
    pods = [make_pod(f"p{i}", node="n0", gpus=2, workload=job.key) for i in range(2)]
    assert reservations(make_snapshot([make_node("n0"), make_node("n1")], pods, [job])) == {}


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


# -- scenarios from the field ------------------------------------------------------------------


def test_a_taint_that_nobody_tolerates_is_no_capacity():
    """kueue 6868: the node isn't counted as usable, whoever else tolerates its taint."""
    wanted = (Toleration("dedicated", "Exists", "", ""),)
    others = [
        make_workload("other-resource", shape=dataclasses.replace(
            make_shape(1, tolerations=wanted), requests={"amd.com/gpu": 1})),
        make_workload("elsewhere", shape=make_shape(
            1, tolerations=wanted, affinity=((Requirement("zone", "In", ("b",)),),))),
        make_workload("not-managed", managed=False, shape=make_shape(1, tolerations=wanted)),
        make_workload("finished", finished=True, shape=make_shape(1, tolerations=wanted)),
    ]  # fmt: skip
    node = make_node("n0", taints=(TAINT,), labels={"zone": "a"})
    jobs = [dataclasses.replace(job, granted=0) for job in others]
    assert account(make_snapshot([node], [], jobs)).totals[GPU] == {"tainted": 8}


def test_a_change_of_groups_is_seen_though_the_totals_are_equal():
    """A2,B2 become A3,B1 (kueue 9329)."""
    a, b = make_workload("a", granted=2), make_workload("b", granted=2)
    nodes = [make_node(f"n{i}") for i in range(4)]

    def found(of_a, of_b):
        pods = [*make_replicas(a, of_a), *make_replicas(b, of_b)]
        return account(make_snapshot(nodes, pods, [
            dataclasses.replace(a, granted=len(of_a)), dataclasses.replace(b, granted=len(of_b))
        ]))  # fmt: skip

    before, after = found(["n0", "n1"], ["n2", "n3"]), found(["n0", "n1", "n2"], ["n3"])
    assert before.totals == after.totals == {GPU: {"used": 32}}
    assert before.holders[GPU] == {Holder("ml", a.key): 16, Holder("ml", b.key): 16}
    assert after.holders[GPU] == {Holder("ml", a.key): 24, Holder("ml", b.key): 8}
    assert before != after


def test_dead_pods_are_not_active():
    """4 alive, 10 dead (ray 63566)."""
    alive = [make_pod(f"a{i}", node="n0", gpus=1) for i in range(4)]
    dead = [make_pod(f"d{i}", node="n0", gpus=1, phase=PodPhase.FAILED) for i in range(10)]
    found = account(make_snapshot([make_node("n0")], [*alive, *dead]))
    assert found.totals[GPU] == {"used": 4, "free": 4}
    assert found.holders[GPU] == {Holder("ml", None): 4}


def test_a_node_without_its_devices_yet_is_booting_not_empty():
    """autoscaler 7956: nobody asks for more nodes because of it."""
    bare = {"cpu": 64_000}
    boots = make_node("n1", capacity=bare, allocatable=bare, expects={GPU: 8})
    job = make_workload("a", granted=0, suspended=True)
    made = plan(make_snapshot([make_node("n0", 4), boots], [], [job]), make_policies(), NOW)
    assert made.accounting.totals[GPU] == {"free": 4, "booting": 8}
    assert made.decisions[0].reason.code is ReasonCode.WAITS_FOR_MINIMUM
    assert made.commands == ()


def _half_used(dying):
    """32 accelerators on 4 nodes, 16 of them used, one device dies."""
    nodes = [make_node(f"n{i}") for i in range(4)]
    nodes[dying] = make_node(f"n{dying}", allocatable={GPU: 7}, unhealthy={GPU: 1})
    pods = [make_pod(f"p{i}", node=f"n{i}") for i in range(2)]
    job = make_workload("a", granted=0, suspended=True)
    return make_snapshot(nodes, pods, [job]), make_policies(make_policy(min_replicas=2))


def test_a_used_device_that_dies_takes_nothing_from_what_is_free():
    """volcano 5911: the job of 16 finds its two whole nodes."""
    snapshot, policies = _half_used(dying=0)
    made = plan(snapshot, policies, NOW)
    assert account(snapshot).totals[GPU] == {"used": 15, "used_unhealthy": 1, "free": 16}
    assert made.decisions[0].reason.code is ReasonCode.ADMITTED


def test_a_free_device_that_dies_is_told_as_the_reason():
    """volcano 5911: 15 are free, and not two times 8: refused, and the reason says what is
    missing."""
    snapshot, policies = _half_used(dying=3)
    (decision,) = plan(snapshot, policies, NOW).decisions
    assert account(snapshot).totals[GPU] == {"used": 16, "free": 15, "not_ready": 1}
    assert decision.reason.code is ReasonCode.WAITS_FOR_MINIMUM
    assert decision.reason.numbers["min"] == 2


def test_an_alarm_when_the_two_sums_differ():
    """KAI 1048: what the nodes' states and what the holders say of the same pods."""
    pods = [make_pod(f"p{i}", node="n0", gpus=2) for i in range(3)]
    pods.append(make_pod("leaving", node="n0", gpus=1, deleting=True))
    right = account(make_snapshot([make_node("n0")], pods))
    assert differences(right) == ()
    drifted = dataclasses.replace(right, holders={GPU: {Holder("ml", None): 6}})
    assert differences(drifted) == (Difference(GPU, 7, 6),)
    ghost = dataclasses.replace(right, holders={**right.holders, "amd.com/gpu": {HOLDER: 1}})
    assert differences(ghost) == (Difference("amd.com/gpu", 0, 1),)
    assert differences(Accounting()) == ()


HOLDER = Holder("ml", make_key("gone"))


def test_slices_and_whole_devices_of_a_node_are_apart():
    """KAI 422: what a slice holds isn't held of the whole devices too."""
    both = {GPU: 2, "nvidia.com/mig-1g.5gb": 42}
    node = make_node("n0", capacity=both, allocatable=both)
    pods = [
        make_pod("whole", node="n0", gpus=1),
        make_pod("slice", node="n0", requests={"nvidia.com/mig-1g.5gb": 5}),
    ]
    assert account(make_snapshot([node], pods)).totals == {
        GPU: {"used": 1, "free": 1},
        "nvidia.com/mig-1g.5gb": {"used": 5, "free": 37},
    }


def test_ordinary_resources_are_none_of_it():
    amounts = {GPU: 1, "cpu": 4000, "memory": 2**30, "hugepages-2Mi": 2**30, "pods": 110}
    node = make_node("n0", capacity=amounts, allocatable=amounts)
    pod = make_pod(node="n0", requests={GPU: 1, "cpu": 1, "memory": 1, "hugepages-2Mi": 1})
    found = account(make_snapshot([node], [pod]))
    assert found.totals == {GPU: {"used": 1}}
    assert set(found.holders) == {GPU}


# -- properties --------------------------------------------------------------------------------

AMD, MIG = "amd.com/gpu", "nvidia.com/mig-1g.5gb"
RESOURCES = (GPU, AMD, MIG)
TAINTS = [(), (TAINT,), (Taint("soft", "", "PreferNoSchedule"),)]
ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


@st.composite
def amounts(draw, most=8):
    return {
        name: draw(st.integers(0, most))
        for name in draw(st.lists(st.sampled_from(RESOURCES), unique=True, max_size=2))
    }


@st.composite
def one_node(draw, name):
    return make_node(
        name,
        capacity={**draw(amounts()), "cpu": 9000},
        allocatable={**draw(amounts()), "cpu": 9000},  # less, more or other than there is
        expects=draw(amounts()),
        ready=draw(st.booleans()),
        unschedulable=draw(st.booleans()),
        taints=draw(st.sampled_from(TAINTS)),
        pool=draw(st.sampled_from(["main", "other"])),
        departure=draw(st.sampled_from([None, Departure("drain", None, "test")])),
    )


@st.composite
def one_pod(draw, name, jobs):
    index = draw(st.integers(0, 3) | st.none())
    return make_pod(
        name,
        requests={**draw(amounts()), "cpu": 100},
        node=draw(st.sampled_from([None, "gone", "n0", "n1", "n2"])),
        nominated_node=draw(st.sampled_from([None, "n0", "n1"])),
        deleting=draw(st.booleans()),
        phase=draw(st.sampled_from(list(PodPhase))),
        workload=draw(st.sampled_from([None, make_key("unknown"), *(job.key for job in jobs)])),
        labels=draw(st.sampled_from([{}, {"concertina.dev/team": "vision"}])),
        replica_index=index,
    )


@st.composite
def snapshots(draw):
    tolerant = make_shape(2, tolerations=(Toleration("dedicated", "Exists", "", ""),))
    jobs = [
        make_workload(
            f"j{i}",
            granted=draw(st.integers(0, 4)),
            shape=draw(st.sampled_from([make_shape(2), tolerant])),
            team=draw(st.sampled_from(["ml", "nlp"])),
            managed=draw(st.booleans()),
        )
        for i in range(draw(st.integers(0, 2)))
    ]
    nodes = [draw(one_node(f"n{i}")) for i in range(3)]
    pods = [draw(one_pod(f"p{i}", jobs)) for i in range(draw(st.integers(0, 8)))]
    flights = [make_flight(job, 2) for job in jobs[:1] if draw(st.booleans())]
    return make_snapshot(nodes, pods, jobs, in_flight=flights)


CLOSED = st.sampled_from([(), ("n0",), ("n1", "gone")])


def _held(snapshot, name, resource):
    return sum(
        pod.requests.get(resource, 0)
        for pod in snapshot.pods
        if pod.node == name and pod.phase not in ENDED
    )


@given(snapshots(), CLOSED)
def test_states_add_up_for_every_node_and_in_every_sum(snapshot, closed):
    found = account(snapshot, closed=closed)
    for node in snapshot.nodes:
        for resource in RESOURCES:
            states = found.nodes[node.name].get(resource, {})
            held = _held(snapshot, node.name, resource)
            total = max(node.capacity.get(resource, 0), node.expects.get(resource, 0), held)
            assert all(n > 0 for n in states.values())
            assert sum(states.values()) == total
            assert found.capacity[node.name].get(resource, 0) == total
            assert held == sum(
                states.get(name, 0) for name in ("used", "used_unhealthy", "terminating")
            )
            if not node.ready or node.unschedulable:
                assert not {"free", "reserved"} & set(states)
    total = sum(sum(s.values()) for states in found.nodes.values() for s in states.values())
    assert sum(sum(states.values()) for states in found.totals.values()) == total
    by_pool = [s for pool in found.pools.values() for s in pool.values()]
    assert sum(sum(states.values()) for states in by_pool) == total
    assert differences(found) == ()


@given(snapshots(), CLOSED)
def test_order_does_not_matter_and_what_is_free_can_be_taken(snapshot, closed):
    found = account(snapshot, closed=closed)
    turned = dataclasses.replace(
        snapshot,
        nodes=snapshot.nodes[::-1], pods=snapshot.pods[::-1], workloads=snapshot.workloads[::-1],
    )  # fmt: skip
    assert account(turned, closed=closed) == found
    for name, resources in found.nodes.items():
        node = next(n for n in snapshot.nodes if n.name == name)
        for resource, states in resources.items():
            if states.get(CapacityState.FREE):
                offered = node.allocatable.get(resource, 0)
                assert states[CapacityState.FREE] <= offered - _held(snapshot, name, resource)
                assert name not in closed


@given(snapshots(), snapshots(), CLOSED, CLOSED)
def test_books_that_are_kept_tell_the_same_as_from_scratch(first, second, closed, later):
    """Some nodes and pods stay; others, jobs, reservations change: by changes and anew."""
    kept = tuple(first.pods[::2])
    nodes = (*first.nodes[:2], second.nodes[2])
    second = dataclasses.replace(second, nodes=nodes, pods=(*kept, *second.pods))
    books = Books(first.nodes, first.pods)

    def told(snapshot, closed):
        open_to = takers(shape_of(w.shape) for w in snapshot.workloads if w.managed)
        reserved = reservations(snapshot, closed=closed)
        return books.accounting(snapshot.workloads, reserved, open_to, closed)

    assert told(first, closed) == account(first, closed=closed)
    same = {id(pod) for pod in kept}
    books.update(
        nodes=second.nodes[2:],
        pods=[pod for pod in second.pods if id(pod) not in same],
        gone=[pod for pod in first.pods if id(pod) not in same],
    )
    found, want = told(second, later), account(second, closed=later)
    assert found == want
    assert repr(found) == repr(want)  # in the same order too
    books.update(pods=[], gone=second.pods)
    assert told(dataclasses.replace(second, pods=()), later) == account(
        dataclasses.replace(second, pods=()), closed=later
    )


def test_nodes_that_are_alike_share_their_states():
    one, other = (node_states(make_node(name), [], {}, ()) for name in ("n0", "n1"))
    assert one is other


@pytest.mark.parametrize(
    ("reserved", "open_to", "closed", "want"),
    [
        ({}, (), (), {"n0": {"tainted": 8}, "n1": {"free": 8}}),
        ({"n1": {GPU: 3}}, (), (), {"n0": {"tainted": 8}, "n1": {"reserved": 3, "free": 5}}),
        ({}, (TOLERANT,), (), {"n0": {"free": 8}, "n1": {"free": 8}}),
        ({}, (), ("n1",), {"n0": {"tainted": 8}, "n1": {"cordoned": 8}}),
        ({"gone": {GPU: 3}}, (), ("gone",), {"n0": {"tainted": 8}, "n1": {"free": 8}}),
    ],
)
def test_books_follow_what_is_reserved_open_and_closed(reserved, open_to, closed, want):
    """From a cluster at rest to the case, and back."""
    books = Books([make_node("n0", taints=(TAINT,)), make_node("n1")], [])
    rest = books.accounting((), {}, ())
    found = books.accounting((), reserved, open_to, closed)
    assert found.nodes == {name: {GPU: states} for name, states in want.items()}
    assert sum(found.totals[GPU].values()) == 16
    assert books.accounting((), {}, ()) == rest
