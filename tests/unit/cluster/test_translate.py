"""Kubernetes objects -> the engine's snapshot: requests, phases, owners, nodes, defects."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.cache import ClusterCache
from controlplane.cluster.interface import Manifest, Resource, Unreachable, Verb
from controlplane.cluster.resources import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICASETS,
    WATCHED,
)
from controlplane.cluster.translate import Translation, translate
from controlplane.engine.accounting import account
from controlplane.engine.snapshot import Node, Pod
from controlplane.engine.types import PodPhase, PreemptionPolicy, Requirement, WorkloadKey
from tests.manifests import (
    make_container,
    make_deployment_object,
    make_job_object,
    make_node_object,
    make_owner,
    make_pod_object,
    make_priority_class_object,
    make_replicaset_object,
)

GPU = "nvidia.com/gpu"


def translated(
    objects: dict[Resource, list[Manifest]], *, lose: Resource | None = None
) -> Translation:
    cache = ClusterCache(WATCHED, lambda channel: None, clock=lambda: 5000.0)
    for resource in WATCHED:
        cache.replace(resource, objects.get(resource, []))
        cache.alive(resource)
    if lose is not None:
        cache.lost(lose, Unreachable("east", Verb.WATCH, str(lose), "connection refused."))
    return translate(cache.view(), "east")


def pod_of(manifest: Manifest, **others: list[Manifest]) -> Pod:
    resources = {r.plural: r for r in WATCHED}
    objects = {resources[name]: items for name, items in others.items()}
    (pod,) = translated({**objects, PODS: [manifest]}).snapshot.pods
    return pod


def node_of(*manifests: Manifest) -> Node:
    """The first of the nodes, by name."""
    return translated({NODES: list(manifests)}).snapshot.nodes[0]


def test_a_pod() -> None:
    seen = pod_of(
        make_pod_object(
            "llama-3-x",
            node="main-00",
            index=3,
            owners=make_owner("Job", "llama"),
            spec={
                "containers": [make_container(8, cpu="2", memory="1Gi")],
                "priorityClassName": "high",
                "nodeSelector": {"concertina.dev/pool": "main"},
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
                "priority": 1000,
            },
            labels={"concertina.dev/team": "nlp"},
        ),
        jobs=[make_job_object("llama")],
        priorityclasses=[make_priority_class_object("high", 1000)],
    )
    assert seen.workload == WorkloadKey("Job", "ml", "llama")
    assert (seen.node, seen.phase, seen.ready, seen.deleting) == (
        "main-00",
        PodPhase.RUNNING,
        True,
        False,
    )
    assert dict(seen.requests) == {GPU: 8, "cpu": 2000, "memory": 2**30}
    assert (seen.priority, seen.priority_class) == (1000, "high")
    assert seen.preemption_policy == PreemptionPolicy.NEVER
    assert seen.replica_index == 3
    assert [(t.key, t.operator) for t in seen.tolerations] == [("a", "Exists")]
    assert seen.labels == {"concertina.dev/team": "nlp"}
    assert seen.created_at == 1796083200.0


PHASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "waiting": ({}, {"node": None, "phase": PodPhase.PENDING, "ready": False}),
    "nominated": ({"nominated": "main-07"}, {"nominated_node": "main-07", "node": None}),
    "starting": ({"node": "n", "phase": "Pending"}, {"node": "n", "phase": PodPhase.PENDING}),
    "running": ({"node": "n"}, {"phase": PodPhase.RUNNING, "ready": True}),
    "running, not ready": ({"node": "n", "ready": False}, {"ready": False}),
    "terminating": ({"node": "n", "deleting": True}, {"deleting": True, "phase": PodPhase.RUNNING}),
    "succeeded": ({"node": "n", "phase": "Succeeded"}, {"phase": PodPhase.SUCCEEDED}),
    "failed": ({"node": "n", "phase": "Failed"}, {"phase": PodPhase.FAILED}),
    "unknown": ({"node": "n", "phase": "Unknown"}, {"phase": PodPhase.UNKNOWN}),
    "default preemption": ({}, {"preemption_policy": PreemptionPolicy.PREEMPT_LOWER_PRIORITY}),
    "stands alone": ({}, {"workload": None, "replica_index": None}),
    "stays": ({"node": "n"}, {"deletion_due": None, "deletion_cost": 0, "claims": ()}),
    "when it should have gone": ({"node": "n", "deleting": True}, {"deletion_due": 1796083260.0}),
    "deletion cost": (
        {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-7"}},
        {"deletion_cost": -7},
    ),
    "a deletion cost that is none": (
        {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "cheap"}},
        {"deletion_cost": 0},
    ),
    "a deletion cost beyond 32 bits": (
        {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "9999999999"}},
        {"deletion_cost": 0},
    ),
    "required node affinity": (
        {
            "spec": {
                "containers": [make_container(1)],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}
                            ]
                        }
                    }
                },
            }
        },
        {"affinity": ((Requirement("rack", "Exists"),),)},
    ),
}


@pytest.mark.parametrize("name", PHASES)
def test_phases(name: str) -> None:
    fields, want = PHASES[name]
    seen = pod_of(make_pod_object(**fields))
    assert {field: getattr(seen, field) for field in want} == want


@pytest.mark.parametrize(
    ("fields", "used", "terminating"),
    [
        ({"node": "main-00"}, 8, 0),
        ({"node": "main-00", "phase": "Pending"}, 8, 0),
        ({"node": "main-00", "deleting": True}, 0, 8),
        ({"node": "main-00", "phase": "Succeeded"}, 0, 0),
        ({"node": "main-00", "phase": "Failed"}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_what_a_pod_holds(fields: dict[str, Any], used: int, terminating: int) -> None:
    pods = [make_pod_object(**fields)]
    snapshot = translated({NODES: [make_node_object()], PODS: pods}).snapshot
    states = {str(k): v for k, v in account(snapshot).nodes["main-00"][GPU].items()}
    assert (states.get("used", 0), states.get("terminating", 0)) == (used, terminating)
    assert sum(states.values()) == 8


def test_planner_and_page_count_a_pod_by_one_formula() -> None:
    """Sidecars, init containers and overhead, in the pod and in its job's shape (KAI 1880)."""
    spec = {
        "containers": [make_container(4, cpu="2")],
        "initContainers": [
            {**make_container(1, cpu="1"), "restartPolicy": "Always"},
            make_container(6, cpu="8"),
        ],
        "overhead": {"cpu": "250m"},
    }
    pod = make_pod_object(node="main-00", owners=make_owner("Job", "llama"), spec=spec)
    job = make_job_object("llama", parallelism=1, pod_spec=spec)
    found = translated({NODES: [make_node_object()], PODS: [pod], JOBS: [job]}).snapshot
    want = {GPU: 7, "cpu": 9250}  # the second init container with the sidecar before it
    assert dict(found.pods[0].requests) == want
    assert dict(found.workloads[0].shape.requests) == want
    assert account(found).totals[GPU] == {"used": 7, "free": 1}


def test_owners_are_followed_to_the_top() -> None:
    owners = make_owner("ReplicaSet", "chat-5d", api="apps/v1")
    seen = pod_of(
        make_pod_object("chat-5d-x", "serving", owners=owners),
        replicasets=[make_replicaset_object("chat-5d", deployment="chat")],
        deployments=[make_deployment_object("chat")],
    )
    assert seen.workload == WorkloadKey("Deployment", "serving", "chat")
    assert seen.replica_index is None


def test_an_owner_that_we_do_not_watch_is_named_all_the_same() -> None:
    seen = pod_of(make_pod_object(owners=make_owner("StatefulSet", "db", api="apps/v1")))
    assert seen.workload == WorkloadKey("StatefulSet", "ml", "db")


NODE_CASES: dict[str, tuple[Manifest, dict[str, Any]]] = {
    "ready": (
        make_node_object(),
        {"name": "main-00", "pool": "main", "ready": True, "unschedulable": False, "expects": {}},
    ),
    "counts only what the engine counts": (
        make_node_object(),
        {"capacity": {GPU: 8, "cpu": 64000, "memory": 512 * 2**30}},
    ),
    "not ready": (make_node_object(ready=False), {"ready": False}),
    "cordoned": (make_node_object(unschedulable=True), {"unschedulable": True}),
    "unhealthy devices are capacity that can't be allocated": (
        make_node_object(allocatable=6),
        {"unhealthy": {GPU: 2}},
    ),
    "gke pool": (
        make_node_object(labels={"cloud.google.com/gke-nodepool": "a100"}),
        {"pool": "a100"},
    ),
    "our own pool label wins": (
        make_node_object(labels={"agentpool": "x", "concertina.dev/pool": "y"}),
        {"pool": "y"},
    ),
    "no pool": (make_node_object(labels={"a": "b"}), {"pool": "default"}),
    "booting: its labels promise accelerators": (
        make_node_object(gpus=None, labels={"nvidia.com/gpu.count": "4"}),
        {"expects": {GPU: 4}},
    ),
    "the promise is kept": (
        make_node_object(gpus=4, labels={"nvidia.com/gpu.count": "4"}),
        {"expects": {}},
    ),
    "a label that is no number promises nothing": (
        make_node_object(gpus=None, labels={"nvidia.com/gpu.count": "some"}),
        {"expects": {}},
    ),
}


@pytest.mark.parametrize("name", NODE_CASES)
def test_nodes(name: str) -> None:
    manifest, want = NODE_CASES[name]
    seen = node_of(manifest)
    assert {field: getattr(seen, field) for field in want} == want


def test_a_node_without_its_devices_is_booting_when_its_pool_has_them() -> None:
    seen = node_of(
        make_node_object("a", gpus=None), make_node_object("b"), make_node_object("c", gpus=8)
    )
    assert seen.name == "a"
    assert seen.expects == {GPU: 8}


def test_taints() -> None:
    taint = {"key": "concertina.dev/local", "value": "true", "effect": "NoSchedule"}
    (seen,) = node_of(make_node_object(taints=[taint])).taints
    assert (seen.key, seen.value, seen.effect) == ("concertina.dev/local", "true", "NoSchedule")


def test_a_malformed_workload_is_reported_and_left_alone() -> None:
    bad = make_job_object("bad", annotations={"concertina.dev/pods-per-replica": "two"})
    pod = make_pod_object(node="main-00", owners=make_owner("Job", "bad"))
    found = translated(
        {JOBS: [make_job_object("good"), bad], PODS: [pod], NODES: [make_node_object()]}
    )
    assert [w.key.name for w in found.snapshot.workloads] == ["good"]
    assert found.snapshot.complete  # the others go on
    (problem,) = found.problems
    assert problem.workload == WorkloadKey("Job", "ml", "bad")
    assert problem.field == "annotation concertina.dev/pods-per-replica"
    assert (problem.value, problem.uid) == ("two", "uid-bad")
    assert found.snapshot.pods[0].requests[GPU] == 8  # what it holds is still held


def test_a_pod_that_cannot_be_counted_makes_the_snapshot_incomplete() -> None:
    spec = {"containers": [{"resources": {"limits": {GPU: "lots"}}}]}
    found = translated({PODS: [make_pod_object("odd", spec=spec)]})
    assert not found.snapshot.complete
    assert "'lots'" in found.missing["pod ml/odd"]


def test_a_lost_source_makes_the_snapshot_incomplete() -> None:
    found = translated({}, lose=NODES)
    assert not found.snapshot.complete
    assert "connection refused" in found.missing["nodes"]


def test_order_does_not_depend_on_the_order_of_arrival() -> None:
    nodes = [make_node_object(f"n{i}") for i in range(4)]
    pods = [make_pod_object(f"p{i}") for i in range(4)]
    jobs = [make_job_object(f"j{i}") for i in range(4)]
    classes = [make_priority_class_object("high", 5)]
    there = {NODES: nodes, PODS: pods, JOBS: jobs, PRIORITY_CLASSES: classes}
    back = {resource: items[::-1] for resource, items in there.items()}
    assert translated(there).snapshot == translated(back).snapshot


def test_everything_watched_is_used() -> None:
    assert set(WATCHED) == {NODES, PODS, JOBS, DEPLOYMENTS, REPLICASETS, PRIORITY_CLASSES}
