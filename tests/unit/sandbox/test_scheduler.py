"""The scheduler: rules, order, packing, messages, and that it never oversubscribes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.cluster.podspec import effective_requests as planner_requests
from controlplane.sandbox.clock import ManualClock
from controlplane.sandbox.kinds import NODE, POD, PRIORITYCLASS
from controlplane.sandbox.objects import meta, name_of
from controlplane.sandbox.scheduler import Scheduler
from controlplane.sandbox.scheduler.requests import effective_requests
from controlplane.sandbox.store import Store
from tests.unit.sandbox.builders import (
    GPU,
    make_container,
    make_pod,
    message_of,
    running_cluster,
)


def make_node(name: str, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    labels = spec.pop("labels", {})
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def make_store(*nodes: dict[str, Any]) -> Store:
    store = Store(clock=ManualClock())
    for node in nodes:
        store.create(NODE, node)
    for name, value in (("high", 1000), ("low", 100)):
        store.create(PRIORITYCLASS, {"metadata": {"name": name}, "value": value})
    return store


def schedule(store: Store) -> dict[str, str]:
    """One cycle; the node of each pod, "" for those that wait."""
    scheduler = Scheduler(store, store.clock)
    while scheduler.cycle():
        pass
    return {name_of(pod): pod["spec"].get("nodeName", "") for pod in store.list(POD)}


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
TOLERATES = [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]
ZONE_A = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
            ]
        }
    }
}
NEVER = " preemption: this scheduler never preempts."


@pytest.mark.parametrize(
    ("node", "pod", "want"),
    [
        (make_node("n"), make_pod("p", 8), "n"),
        (make_node("n"), make_pod("p", 9), f"0/1 nodes are available: 1 Insufficient {GPU}."),
        (
            make_node("n", taints=[TAINT]),
            make_pod("p"),
            "0/1 nodes are available: 1 node(s) had untolerated taint {k: v}.",
        ),
        (make_node("n", taints=[TAINT]), make_pod("p", tolerations=TOLERATES), "n"),
        (make_node("n", taints=[TAINT]), make_pod("p", tolerations=[{"operator": "Exists"}]), "n"),
        (
            make_node("n", unschedulable=True),
            make_pod("p"),
            "0/1 nodes are available: 1 node(s) were unschedulable.",
        ),
        (make_node("n", labels={"zone": "a"}), make_pod("p", nodeSelector={"zone": "a"}), "n"),
        (
            make_node("n", labels={"zone": "b"}),
            make_pod("p", nodeSelector={"zone": "a"}),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
        ),
        (make_node("n", labels={"zone": "a"}), make_pod("p", affinity=ZONE_A), "n"),
        (
            make_node("n", labels={"zone": "b"}),
            make_pod("p", affinity=ZONE_A),
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
        ),
        (
            make_node("n"),
            make_pod("p", overhead={"cpu": "65"}),
            "0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            make_node("n"),
            make_pod("p", initContainers=[make_container(9, name="init")]),
            f"0/1 nodes are available: 1 Insufficient {GPU}.",
        ),
        (
            make_node("n"),
            make_pod("p", 6, initContainers=[make_container(6, name="init")]),
            "n",
        ),
        (
            make_node("n"),
            make_pod(
                "p", 6, initContainers=[make_container(6, name="sidecar", restartPolicy="Always")]
            ),
            f"0/1 nodes are available: 1 Insufficient {GPU}.",
        ),
    ],
)
def test_where_a_pod_fits(node: dict[str, Any], pod: dict[str, Any], want: str) -> None:
    store = make_store(node)
    store.create(POD, pod)
    found = schedule(store)["p"]
    if want == "n":
        assert found == "n"
    else:
        assert found == ""
        assert message_of(store.get(POD, "default", "p")) == want + NEVER


def test_message_without_nodes_and_without_preemption() -> None:
    store = make_store()
    store.create(POD, make_pod("p"))
    schedule(store)
    assert message_of(store.get(POD, "default", "p")) == "no nodes available to schedule pods"
    store = make_store(make_node("a"), make_node("b", unschedulable=True), make_node("c"))
    meek = {"metadata": {"name": "meek"}, "value": 5, "preemptionPolicy": "Never"}
    store.create(PRIORITYCLASS, meek)
    store.create(POD, make_pod("p", 9, priorityClassName="meek"))
    schedule(store)
    assert message_of(store.get(POD, "default", "p")) == (
        f"0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient {GPU}. "
        "preemption: not eligible due to preemptionPolicy=Never."
    )


def test_priority_then_age() -> None:
    store = make_store(make_node("n", 8))
    for name, gpus, priority in (("a", 4, "low"), ("b", 4, "low"), ("c", 4, "high")):
        store.create(POD, make_pod(name, gpus, priorityClassName=priority))
    assert schedule(store) == {"a": "n", "b": "", "c": "n"}


def test_one_that_cannot_fit_blocks_nobody() -> None:
    store = make_store(make_node("n", 8))
    for number in range(50):
        store.create(POD, make_pod(f"huge-{number:02}", 16, priorityClassName="high"))
    store.create(POD, make_pod("small", 1, priorityClassName="low"))
    assert schedule(store)["small"] == "n"


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        ([4, 4, 8], ["a", "a", "b"]),
        ([2, 8, 2, 2], ["a", "b", "a", "a"]),
        ([6, 6, 2, 2], ["a", "b", "a", "b"]),
    ],
)
def test_packs_whole_nodes(pods: list[int], want: list[str]) -> None:
    store = make_store(make_node("a"), make_node("b"))
    for number, gpus in enumerate(pods):
        store.create(POD, make_pod(f"p{number}", gpus))
    assert list(schedule(store).values()) == want


def test_work_without_accelerators_stays_off_accelerators() -> None:
    store = make_store(make_node("a", 8), make_node("z", 0))
    store.create(POD, make_pod("p"))
    assert schedule(store) == {"p": "z"}


async def test_reacts_to_what_frees_capacity(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, "main=1x8") as cluster:
        cluster.create(POD, make_pod("first", 8))
        cluster.create(POD, make_pod("second", 8))
        await cluster.settle()
        assert cluster.nodes_of(cluster.pods()) == ["main-0", ""]
        cluster.change(NODE, "main-0", lambda n: n["spec"].update(unschedulable=True))
        cluster.store.delete(POD, "default", "first", grace_seconds=0)
        await cluster.settle()
        assert "unschedulable" in message_of(cluster.get(POD, "second"))
        cluster.change(NODE, "main-0", lambda n: n["spec"].pop("unschedulable"))
        await cluster.settle()
        assert cluster.nodes_of(cluster.pods()) == ["main-0"]


def test_gated_and_foreign_pods_are_left_alone() -> None:
    store = make_store(make_node("n"))
    store.create(POD, make_pod("gated", schedulingGates=[{"name": "wait"}]))
    store.create(POD, make_pod("foreign", schedulerName="other"))
    assert schedule(store) == {"foreign": "", "gated": ""}
    [condition] = store.get(POD, "default", "gated")["status"]["conditions"]
    assert (condition["reason"], condition["status"]) == ("SchedulingGated", "False")


_SIZES = st.integers(0, 9)


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.lists(st.integers(0, 8), min_size=1, max_size=5),
    rounds=st.lists(
        st.tuples(
            st.lists(st.tuples(_SIZES, st.booleans()), max_size=8),
            st.lists(st.integers(0, 30), max_size=4),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_never_oversubscribes(
    nodes: list[int], rounds: list[tuple[list[tuple[int, bool]], list[int]]]
) -> None:
    """Whatever comes and goes: no node holds more than it has, and nothing that fits waits."""
    store = make_store(*(make_node(f"n{i}", gpus) for i, gpus in enumerate(nodes)))
    scheduler = Scheduler(store, store.clock)
    watch = store.watch()
    serial = 0
    for arriving, leaving in rounds:
        for gpus, high in arriving:
            priority = "high" if high else "low"
            store.create(POD, make_pod(f"p{serial}", gpus, priorityClassName=priority))
            serial += 1
        for number in leaving:
            if store.find(POD, "default", f"p{number}"):
                store.delete(POD, "default", f"p{number}", grace_seconds=0)
        for event in watch.drain():
            scheduler.observe(event)
        while scheduler.cycle():
            pass
        free = dict(enumerate(nodes))
        waiting = []
        for pod in store.list(POD):
            gpus = effective_requests(pod["spec"]).get(GPU, 0)
            if node := pod["spec"].get("nodeName"):
                free[int(node[1:])] -= gpus
            else:
                waiting.append(gpus)
        assert min(free.values()) >= 0
        assert all(gpus > max(free.values()) for gpus in waiting)
    for state in scheduler.nodes.values():
        for event in watch.drain():
            scheduler.observe(event)
        held = [p for p in store.list(POD) if p["spec"].get("nodeName") == state.name]
        assert state.pods == len(held), "what is held is not counted twice"


_CONTAINER = st.builds(
    lambda gpus, cpu, always: {
        **make_container(),
        "resources": {"requests": {GPU: str(gpus), "cpu": cpu}, "limits": {GPU: str(gpus)}},
        **({"restartPolicy": "Always"} if always else {}),
    },
    st.integers(0, 8),
    st.sampled_from(["100m", "1", "0.5", "2500m"]),
    st.booleans(),
)


@given(st.lists(_CONTAINER, min_size=1, max_size=3), st.lists(_CONTAINER, max_size=4))
def test_planner_and_scheduler_agree_on_requests(
    containers: list[dict[str, Any]], init: list[dict[str, Any]]
) -> None:
    """KAI 1880: sidecars, init containers and overhead count the same everywhere."""
    spec = {"containers": containers, "initContainers": init, "overhead": {"cpu": "250m"}}
    assert dict(planner_requests(spec)) == effective_requests(spec)


def test_uid_of_a_recreated_pod_is_new() -> None:
    store = make_store(make_node("n", 8))
    first = store.create(POD, make_pod("p", 8))
    assert schedule(store) == {"p": "n"}
    store.delete(POD, "default", "p", grace_seconds=0)
    second = store.create(POD, make_pod("p", 8))
    assert meta(first)["uid"] != meta(second)["uid"]
    assert schedule(store) == {"p": "n"}
