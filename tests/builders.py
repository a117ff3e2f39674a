"""Builders for the engine's values: give what the case is about, the rest is ordinary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.engine.policy import ElasticityPolicy, PolicySet
from controlplane.engine.snapshot import (
    ClusterSnapshot,
    History,
    InFlight,
    Node,
    Pod,
    ReplicaShape,
    TrainerReport,
    Workload,
)
from controlplane.engine.types import PodPhase, PreemptionPolicy, WorkloadKey

GPU = "nvidia.com/gpu"
NOW = 1_000_000.0


def make_key(name: str, kind: str = "Job", namespace: str = "ml") -> WorkloadKey:
    return WorkloadKey(kind, namespace, name)


def make_node(name: str = "n0", gpus: int = 8, **fields: Any) -> Node:
    amounts = {GPU: gpus, "cpu": 128_000, "memory": 2**40} if gpus else {"cpu": 128_000}
    values: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "pool": "main",
        "labels": {},
        "taints": (),
        "ready": True,
        "unschedulable": False,
        "capacity": amounts,
        "allocatable": amounts,
    }
    return Node(**(values | fields))


def make_nodes(n: int, gpus: int = 8, **fields: Any) -> tuple[Node, ...]:
    return tuple(make_node(f"n{i:02}", gpus, **fields) for i in range(n))


def make_pod(name: str = "p0", *, gpus: int = 8, node: str | None = None, **fields: Any) -> Pod:
    """A pod; running and ready when it is on a node."""
    values: dict[str, Any] = {
        "uid": f"uid-{name}",
        "namespace": "ml",
        "name": name,
        "node": node,
        "nominated_node": None,
        "phase": PodPhase.RUNNING if node else PodPhase.PENDING,
        "deleting": False,
        "ready": node is not None,
        "requests": {GPU: gpus} if gpus else {"cpu": 100},
        "priority": 0,
        "priority_class": "",
        "preemption_policy": PreemptionPolicy.NEVER,
        "workload": None,
        "replica_index": None,
        "tolerations": (),
        "node_selector": {},
        "created_at": NOW - 1000,
        "labels": {},
    }
    return Pod(**(values | fields))


def make_shape(gpus: int = 8, pods_per_replica: int = 1, **fields: Any) -> ReplicaShape:
    return ReplicaShape(pods_per_replica=pods_per_replica, requests={GPU: gpus}, **fields)


def make_workload(name: str = "job", granted: int = 1, **fields: Any) -> Workload:
    values: dict[str, Any] = {
        "key": make_key(name),
        "uid": f"uid-{name}",
        "resource_version": "1",
        "generation": 1,
        "created_at": NOW - 5000,
        "managed": True,
        "policy": "elastic",
        "priority": 100,
        "priority_class": "training",
        "team": "ml",
        "queue": "",
        "shape": make_shape(),
        "granted": granted,
        "suspended": False,
        "finished": False,
        "epoch": 0,
    }
    return Workload(**(values | fields))


def make_replicas(workload: Workload, nodes: Iterable[str | None], **fields: Any) -> list[Pod]:
    """One-pod replicas of a workload, index 0 first, on these nodes (None: pending)."""
    return [
        make_pod(
            f"{workload.key.name}-{index}",
            node=node,
            workload=workload.key,
            replica_index=index,
            priority=workload.priority,
            requests=dict(workload.shape.requests),
            tolerations=workload.shape.tolerations,
            node_selector=workload.shape.node_selector,
            **fields,
        )
        for index, node in enumerate(nodes)
    ]


def make_policy(name: str = "elastic", **fields: Any) -> ElasticityPolicy:
    """1 to 8 replicas, and nothing that waits."""
    values: dict[str, Any] = {
        "name": name,
        "min_replicas": 1,
        "max_replicas": 8,
        "scaling_timeout": 0.0,
        "cooldown": 0.0,
        "scale_up_snooze": 0.0,
        "fault_scale_down_timeout": 300.0,
    }
    return ElasticityPolicy(**(values | fields))


def make_policies(*policies: ElasticityPolicy) -> PolicySet:
    return PolicySet({policy.name: policy for policy in policies or (make_policy(),)})


def make_snapshot(
    nodes: Iterable[Node] = (),
    pods: Iterable[Pod] = (),
    workloads: Iterable[Workload] = (),
    *,
    reports: Mapping[WorkloadKey, TrainerReport] | None = None,
    in_flight: Iterable[InFlight] = (),
    history: Mapping[WorkloadKey, History] | None = None,
    taken_at: float = NOW,
    complete: bool = True,
) -> ClusterSnapshot:
    return ClusterSnapshot(
        cluster="test",
        taken_at=taken_at,
        complete=complete,
        nodes=tuple(nodes),
        pods=tuple(pods),
        workloads=tuple(workloads),
        reports=reports or {},
        in_flight=tuple(in_flight),
        history=history or {},
    )


def make_flight(workload: Workload, to: int, **fields: Any) -> InFlight:
    values: dict[str, Any] = {
        "command_id": f"c-{workload.key.name}",
        "workload": workload.key,
        "from_replicas": workload.granted,
        "to_replicas": to,
        "issued_at": NOW - 1,
        "state": "pending",
    }
    return InFlight(**(values | fields))
