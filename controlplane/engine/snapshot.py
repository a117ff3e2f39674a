"""One immutable picture of a cluster. Mappings are read-only by convention.

Accelerators are counted by extended resource name ("nvidia.com/gpu") and never added up across
names; "cpu" is in millicores, "memory" in bytes; times are unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.types import (
    NodeAffinity,
    PodPhase,
    PreemptionPolicy,
    Taint,
    Toleration,
    VictimChoice,
    WorkloadKey,
)


@dataclass(frozen=True, slots=True)
class Departure:
    """A node that is going to leave: `kind` is maintenance, interruption (spot) or drain; `at`
    when, unix seconds, None if it wasn't said (at any moment); `source` the taint, annotation or
    label that says so."""

    kind: str
    at: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Node:
    """`expects`: accelerators that the node will have once its device plugin is up (booting).
    `unhealthy`: devices of `capacity` that the node doesn't offer any more. `departure`: it has
    been announced that it leaves. `not_ready_since`: unix seconds, None while it is ready."""

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
    departure: Departure | None = None
    not_ready_since: float | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """`requests` is the effective request (Kubernetes' rule); `workload` the topmost owner.

    `affinity`: required node affinity. `claims`: resource claims by "namespace/name"; devices of a
    claim that several pods share are counted once, in the requests of the first of them by name.
    `deletion_cost`: controller.kubernetes.io/pod-deletion-cost. `deletion_due`: when it should
    have gone (its deletion timestamp), unix seconds; None while it isn't leaving."""

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
    affinity: NodeAffinity = ()
    claims: tuple[str, ...] = ()
    deletion_cost: int = 0
    deletion_due: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaShape:
    """One replica: so many pods, each with this request.

    `topology`: the node label (block, rack, host) within one value of which all pods of the job
    must lie (`topology_required`) or should (preferred); "" for no such wish. Kueue's
    podset-required-topology and podset-preferred-topology, KEP-2724."""

    pods_per_replica: int
    requests: Mapping[str, int]
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: NodeAffinity = ()
    topology: str = ""
    topology_required: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """A training job as the cluster holds it. `granted` is the size written there, in replicas;
    `policy` the name that its annotation gives; `epoch` that of the last write by us, or 0.

    `weight`: its part among equals of its queue. `hints`: pods that the workload itself names as
    the first to leave. `victims`: who may choose what leaves."""

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
    weight: float = 1.0
    hints: tuple[str, ...] = ()
    victims: VictimChoice = VictimChoice.HIGHEST_INDEX


@dataclass(frozen=True, slots=True)
class TrainerReport:
    """The newest that the job's trainer told. `throughput`: useful samples/s by replica count, as
    measured; `deviation`: their relative standard deviation by replica count, where there were
    several. `samples_per_step`: global batch size, so that steps and samples can be compared.
    `attained`: accelerator-seconds of service so far."""

    productive: int | None
    quorum_id: int | None = None
    committed_steps: int | None = None
    total_steps: int | None = None
    throughput: Mapping[int, float] = field(default_factory=dict)
    resize_cost_s: float | None = None
    reported_at: float = 0.0
    deviation: Mapping[int, float] = field(default_factory=dict)
    samples_per_step: float | None = None
    attained: float | None = None

    @property
    def remaining(self) -> float | None:
        """Samples still to do; None when the trainer didn't say."""
        if self.total_steps is None or self.committed_steps is None:
            return None
        return max(0, self.total_steps - self.committed_steps) * (self.samples_per_step or 1.0)


@dataclass(frozen=True, slots=True)
class InFlight:
    """A command that was recorded and isn't finished. `state`: pending, applying or applied.
    `to_replicas` 0: the job is being suspended."""

    command_id: str
    workload: WorkloadKey
    from_replicas: int
    to_replicas: int
    issued_at: float
    state: str


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """One past resize."""

    at: float
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class History:
    """What damping needs of the past. `resizes`: times within the last hour, rising; `moves`: the
    same with their sizes, where they are known. `failed_resizes`: times of the latest resizes that
    failed or timed out since the last that succeeded, rising.
    `growth_wanted_since`: since when there has been room for the job to grow.
    `short_since`: since when it has run fewer replicas than it was granted."""

    last_resize_at: float | None = None
    last_restart_at: float | None = None
    resizes: tuple[float, ...] = ()
    growth_wanted_since: float | None = None
    short_since: float | None = None
    moves: tuple[Move, ...] = ()
    failed_resizes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class DemandHistory:
    """Of a pending demand, by its name: since when a plan has said that it fits, without its being
    bound (None: it doesn't fit), and how often it had to give its place back for that."""

    fits_since: float | None = None
    refusals: int = 0
    refused_at: float | None = None


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """`faults`: when jobs lost a replica to this node, unix seconds, rising."""

    faults: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """`complete` is False while a source hasn't answered: nothing may be decided on it.

    `inflow`: resource -> 168 numbers, one an hour of the week (UTC, Monday 0:00 first): what
    demand of higher priority took within that hour in the recorded weeks, at the quantile that
    the cluster's policy asks for. Absent: not known."""

    cluster: str
    taken_at: float
    complete: bool
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    workloads: tuple[Workload, ...]
    reports: Mapping[WorkloadKey, TrainerReport] = field(default_factory=dict)
    in_flight: tuple[InFlight, ...] = ()
    history: Mapping[WorkloadKey, History] = field(default_factory=dict)
    node_history: Mapping[str, NodeHistory] = field(default_factory=dict)
    demand_history: Mapping[str, DemandHistory] = field(default_factory=dict)
    inflow: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
