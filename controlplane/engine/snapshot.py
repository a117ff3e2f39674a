"""One immutable picture of a cluster. Mappings are read-only by convention.

Accelerators are counted by extended resource name ("nvidia.com/gpu") and never added up across
names; "cpu" is in millicores, "memory" in bytes; times are unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.types import PodPhase, PreemptionPolicy, Taint, Toleration, WorkloadKey


@dataclass(frozen=True, slots=True)
class Node:
    """`expects`: accelerators that the node will have once its device plugin is up (booting).
    `unhealthy`: devices of `capacity` that the node doesn't offer any more."""

    name: str
    uid: str
    pool: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    ready: bool
    unschedulable: bool
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    expects: Mapping[str, int] = field(default_factory=dict)
    unhealthy: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pod:
    """`requests` is the effective request (Kubernetes' rule); `workload` the topmost owner."""

    uid: str
    namespace: str
    name: str
    node: str | None
    nominated_node: str | None
    phase: PodPhase
    deleting: bool
    ready: bool
    requests: Mapping[str, int]
    priority: int
    priority_class: str
    preemption_policy: PreemptionPolicy
    workload: WorkloadKey | None
    replica_index: int | None
    tolerations: tuple[Toleration, ...]
    node_selector: Mapping[str, str]
    created_at: float
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReplicaShape:
    """One replica: so many pods, each with this request."""

    pods_per_replica: int
    requests: Mapping[str, int]
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """A training job as the cluster holds it. `granted` is the size written there, in replicas;
    `policy` the name that its annotation gives; `epoch` that of the last write by us, or 0."""

    key: WorkloadKey
    uid: str
    resource_version: str
    generation: int
    created_at: float
    managed: bool
    policy: str | None
    priority: int
    priority_class: str
    team: str
    queue: str
    shape: ReplicaShape
    granted: int
    suspended: bool
    finished: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class TrainerReport:
    """The newest that the job's trainer told. `throughput`: samples/s by replica count."""

    productive: int | None
    quorum_id: int | None = None
    committed_steps: int | None = None
    total_steps: int | None = None
    throughput: Mapping[int, float] = field(default_factory=dict)
    resize_cost_s: float | None = None
    reported_at: float = 0.0


@dataclass(frozen=True, slots=True)
class InFlight:
    """A command that was recorded and isn't finished. `state`: pending, applying or applied."""

    command_id: str
    workload: WorkloadKey
    from_replicas: int
    to_replicas: int
    issued_at: float
    state: str


@dataclass(frozen=True, slots=True)
class History:
    """What damping needs of the past. `resizes`: times within the last hour, rising.
    `growth_wanted_since`: since when there has been room for the job to grow.
    `short_since`: since when it has run fewer replicas than it was granted."""

    last_resize_at: float | None = None
    last_restart_at: float | None = None
    resizes: tuple[float, ...] = ()
    growth_wanted_since: float | None = None
    short_since: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """`complete` is False while a source hasn't answered: nothing may be decided on it."""

    cluster: str
    taken_at: float
    complete: bool
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    workloads: tuple[Workload, ...]
    reports: Mapping[WorkloadKey, TrainerReport] = field(default_factory=dict)
    in_flight: tuple[InFlight, ...] = ()
    history: Mapping[WorkloadKey, History] = field(default_factory=dict)
