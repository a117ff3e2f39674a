"""When a job lost a replica to a node, and when it was its own doing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.training import actions, faults
from apps.training.models import NodeFault
from controlplane.engine.snapshot import Node, NodeHistory, Pod
from controlplane.engine.types import PodPhase
from tests import builders
from tests.builders import GPU, make_node, make_pod, make_replicas, make_snapshot, make_workload
from tests.rows import make_cluster, make_job

pytestmark = pytest.mark.django_db

AT = datetime.fromtimestamp(builders.NOW, UTC)
JOB = make_workload(granted=4)
NAMES = ["n0", "n1", "n2", "n3"]
FAILED = {"phase": PodPhase.FAILED, "ready": False}
UNREADY = {"ready": False}
LEAVING = {"deleting": True}


def see(
    cluster: Cluster,
    *,
    at: float = 0,
    nodes: dict[str, dict[str, Any]] | None = None,
    pods: dict[int, dict[str, Any]] | None = None,
    lost: tuple[int, ...] = (),
    **fields: Any,
) -> None:
    """A job of four on four nodes; `nodes` and `pods` are what differs, `lost` pods that are gone.
    A node given as None is gone."""
    changed = nodes or {}
    found: list[Node] = [
        make_node(name, **changed.get(name, {}))
        for name in NAMES
        if changed.get(name, {}) != "gone"
    ]
    running: list[Pod] = [
        replace(pod, **(pods or {}).get(index, {}))
        for index, pod in enumerate(make_replicas(JOB, NAMES))
        if index not in lost
    ]
    snapshot = make_snapshot(found, running, [replace(JOB, **fields)])
    actions.sync_jobs(cluster, snapshot, at=AT + timedelta(seconds=at))


CASES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("nothing", {}, {}),
    ("node not ready", {"nodes": {"n2": {"ready": False}}, "pods": {2: UNREADY}},
     {"n2": "node_not_ready"}),
    ("node not ready, its pod goes on", {"nodes": {"n2": {"ready": False}}}, {}),
    ("node gone with its pod", {"nodes": {"n1": "gone"}, "lost": (1,)}, {"n1": "node_gone"}),
    ("device gone", {"nodes": {"n1": {"unhealthy": {GPU: 1}}}, "pods": {1: FAILED}},
     {"n1": "device_unhealthy"}),
    ("pod failed on a good node", {"pods": {3: FAILED}}, {"n3": "pod_failed"}),
    ("half of the job failed", {"pods": {2: FAILED, 3: FAILED}}, {}),
    ("all of it failed", {"pods": dict.fromkeys(range(4), FAILED)}, {}),
    ("all of it, one for the node", {"nodes": {"n0": {"ready": False}},
     "pods": dict.fromkeys(range(4), FAILED)}, {"n0": "node_not_ready"}),
    ("restarts in place", {"pods": {3: UNREADY}}, {}),
    ("drained", {"nodes": {"n3": {"unschedulable": True}}, "pods": {3: LEAVING}}, {}),
    ("deleted by hand", {"lost": (3,)}, {}),
    ("has done its work", {"pods": {3: {"phase": PodPhase.SUCCEEDED}}}, {}),
    ("shrinks", {"granted": 3, "pods": {3: LEAVING}}, {}),
    ("shrinks off a bad node", {"granted": 3, "nodes": {"n3": {"ready": False}}, "lost": (3,)}, {}),
    ("has finished", {"finished": True, "nodes": {"n3": {"ready": False}}, "lost": (3,)}, {}),
    ("is suspended", {"suspended": True, "nodes": {"n3": {"ready": False}}, "lost": (3,)}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "then", "want"), CASES, ids=[case[0] for case in CASES])
def test_what_counts(name: str, then: dict[str, Any], want: dict[str, str]) -> None:
    cluster = make_cluster()
    see(cluster)
    see(cluster, at=10, **then)
    assert dict(NodeFault.objects.values_list("node_name", "cause")) == want


def test_the_same_fault_counts_once() -> None:
    cluster = make_cluster()
    for at in (0, 20, 40):  # it comes and goes
        see(cluster, at=at)
        see(cluster, at=at + 10, nodes={"n2": {"ready": False}}, pods={2: UNREADY})
    assert NodeFault.objects.count() == 1
    see(cluster, at=600)
    see(cluster, at=620, nodes={"n2": {"ready": False}}, pods={2: UNREADY})
    assert NodeFault.objects.count() == 2


def test_a_replica_of_two_pods_hurts_two_nodes() -> None:
    cluster = make_cluster()
    shape = builders.make_shape(pods_per_replica=2)
    job = make_workload(granted=2, shape=shape)
    pods = [
        make_pod(f"p{i}", node=f"n{i}", workload=job.key, replica_index=i // 2) for i in range(4)
    ]
    nodes = [make_node(name) for name in NAMES]
    actions.sync_jobs(cluster, make_snapshot(nodes, pods, [job]), at=AT)
    nodes[2:] = [make_node(name, ready=False) for name in NAMES[2:]]
    pods[2:] = [replace(pod, ready=False) for pod in pods[2:]]
    actions.sync_jobs(cluster, make_snapshot(nodes, pods, [job]), at=AT + timedelta(seconds=9))
    assert sorted(NodeFault.objects.values_list("node_name", flat=True)) == ["n2", "n3"]


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        ([], {}),
        ([("a", "n0", "node_not_ready", 5), ("b", "n0", "pod_failed", 9)], {"n0": (5, 9)}),
        ([("a", "n0", "pod_failed", 5), ("a", "n1", "pod_failed", 9)], {"n0": (5,), "n1": (9,)}),
        # a job whose pods fail wherever they run; what nodes did to it counts
        ([("a", "n0", "pod_failed", 5), ("a", "n1", "pod_failed", 6), ("a", "n2", "pod_failed", 7),
          ("a", "n2", "node_gone", 8), ("b", "n0", "pod_failed", 9)], {"n0": (9,), "n2": (8,)}),
        # too long ago
        ([("a", "n0", "node_not_ready", -1)], {}),
    ],
)  # fmt: skip
def test_histories(rows: list[tuple[str, str, str, int]], want: dict[str, tuple[int, ...]]) -> None:
    cluster, other = make_cluster(), make_cluster("west")
    jobs = {name: make_job(cluster, name) for name in ("a", "b")}
    for name, node, cause, at in rows:
        for place in (cluster, other):
            moment = AT + timedelta(seconds=at if place is cluster else -9999)
            NodeFault.objects.create(
                cluster=place, job=jobs[name], node_name=node, cause=cause, at=moment
            )
    assert faults.histories(cluster, AT) == {
        node: NodeHistory(tuple(builders.NOW + at for at in times)) for node, times in want.items()
    }
