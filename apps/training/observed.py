"""What a snapshot says of each training job and its replicas. Pure: no database, no clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from apps.training.choices import ReplicaPhase
from controlplane.engine.placement import is_accelerator
from controlplane.engine.snapshot import ClusterSnapshot, Pod, Workload
from controlplane.engine.types import PodPhase, WorkloadKey

# Least advanced first: a replica of several pods is as far as its last one.
ORDER = (
    ReplicaPhase.FAILED,
    ReplicaPhase.TERMINATING,
    ReplicaPhase.PENDING,
    ReplicaPhase.STARTING,
    ReplicaPhase.RUNNING,
    ReplicaPhase.SUCCEEDED,
)
ENDED = frozenset({ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED})


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    index: int
    pods: tuple[dict[str, Any], ...]
    phase: ReplicaPhase
    ready: bool
    started_at: datetime

    @property
    def values(self) -> dict[str, Any]:
        """Fields of a Replica row."""
        return {
            "pod_name": self.pods[0]["name"],
            "node_name": self.pods[0]["node"],
            "pods": list(self.pods),
            "phase": self.phase,
            "ready": self.ready,
            "started_at": self.started_at,
        }


@dataclass(frozen=True, slots=True)
class ObservedJob:
    workload: Workload
    replicas: Mapping[int, ObservedReplica] = field(default_factory=dict)

    @property
    def running(self) -> int:
        """Replicas within the granted size whose pods are all ready."""
        return sum(
            replica.ready
            for replica in self.replicas.values()
            if replica.index < self.workload.granted
        )

    @property
    def leaving(self) -> int:
        """Replicas that still hold accelerators and won't stay."""
        return sum(
            replica.phase not in ENDED
            and (
                replica.phase == ReplicaPhase.TERMINATING or replica.index >= self.workload.granted
            )
            for replica in self.replicas.values()
        )

    @property
    def bound(self) -> int:
        return sum(
            replica.phase not in (*ENDED, ReplicaPhase.PENDING)
            for replica in self.replicas.values()
        )


def observed_jobs(snapshot: ClusterSnapshot) -> dict[str, ObservedJob]:
    """Every managed workload of a snapshot by uid, with its replicas."""
    pods: dict[WorkloadKey, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.workload is not None and pod.replica_index is not None:
            pods[pod.workload].append(pod)
    return {
        workload.uid: ObservedJob(
            workload, replicas_of(pods[workload.key], workload.shape.pods_per_replica)
        )
        for workload in snapshot.workloads
        if workload.managed
    }


def replicas_of(pods: Iterable[Pod], pods_per_replica: int) -> dict[int, ObservedReplica]:
    """Pods grouped by replica index. An ended pod counts only while no other took its place."""
    by_index: dict[int, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_index[pod.replica_index or 0].append(pod)
    return {
        index: _replica(index, members, pods_per_replica)
        for index, members in sorted(by_index.items())
    }


def _replica(index: int, members: list[Pod], size: int) -> ObservedReplica:
    live = [pod for pod in members if phase_of(pod) not in ENDED]
    shown = sorted(live or members, key=lambda pod: (pod.created_at, pod.name))
    if not live:  # only the newest life of a replica whose pods have all ended
        shown = shown[-size:]
    phases = [phase_of(pod) for pod in shown]
    ready = sum(phase == ReplicaPhase.RUNNING for phase in phases) >= size
    return ObservedReplica(
        index=index,
        pods=tuple(
            {
                "name": pod.name,
                "node": pod.node or "",
                "phase": str(phase),
                "ready": phase == ReplicaPhase.RUNNING,
            }
            for pod, phase in zip(shown, phases, strict=True)
        ),
        phase=ReplicaPhase.RUNNING if ready else min(phases, key=ORDER.index),
        ready=ready,
        started_at=datetime.fromtimestamp(min(pod.created_at for pod in shown), UTC),
    )


def phase_of(pod: Pod) -> ReplicaPhase:
    if pod.phase == PodPhase.SUCCEEDED:
        return ReplicaPhase.SUCCEEDED
    if pod.phase == PodPhase.FAILED:
        return ReplicaPhase.FAILED
    if pod.deleting:
        return ReplicaPhase.TERMINATING
    if pod.node is None:
        return ReplicaPhase.PENDING
    if pod.ready and pod.phase == PodPhase.RUNNING:
        return ReplicaPhase.RUNNING
    return ReplicaPhase.STARTING


def accelerator_of(workload: Workload) -> tuple[str, int]:
    """(extended resource, accelerators a replica); ("", 0) for a job that asks for none.

    The one that it asks most of names the job.
    """
    asked = {name: n for name, n in workload.shape.requests.items() if is_accelerator(name) and n}
    if not asked:
        return "", 0
    name = min(asked, key=lambda resource: (-asked[resource], resource))
    return name, asked[name] * workload.shape.pods_per_replica
