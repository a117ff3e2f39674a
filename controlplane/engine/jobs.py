"""The working record of one elastic job during a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.engine.accounting import pods_by_workload
from controlplane.engine.decisions import Rejection
from controlplane.engine.placement import ENDED, PodShape, by_replica, shape_of
from controlplane.engine.policy import ElasticityPolicy, PolicySet, valid_sizes, validate
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import (
    ClusterSnapshot,
    History,
    InFlight,
    Pod,
    TrainerReport,
    Workload,
)
from controlplane.engine.types import WorkloadKey


@dataclass(slots=True)
class Job:
    """`target`: replicas that this cycle gives it. `fixed`: why its size may not change in this
    cycle. `policy` and `sizes` are empty for a job that can't be planned."""

    workload: Workload
    policy: ElasticityPolicy | None
    sizes: tuple[int, ...]
    pods: tuple[Pod, ...]
    history: History
    report: TrainerReport | None
    in_flight: InFlight | None
    target: int
    fixed: Reason | None = None
    reason: Reason | None = None
    rejected: list[Rejection] = field(default_factory=list)
    growth_wanted_since: float | None = None
    short_since: float | None = None

    @property
    def shape(self) -> PodShape:
        return shape_of(self.workload.shape)

    @property
    def pods_per_replica(self) -> int:
        return self.workload.shape.pods_per_replica

    @property
    def changed(self) -> bool:
        return self.target != self.workload.granted

    @property
    def minimum(self) -> int:
        return self.sizes[0] if self.sizes else 0

    def next_size(self) -> int | None:
        """The next valid size above the target."""
        return next((size for size in self.sizes if size > self.target), None)

    def lower_size(self) -> int | None:
        """The next valid size below the target."""
        return next((size for size in reversed(self.sizes) if size < self.target), None)

    def running(self) -> int:
        """Replicas below the target whose pods are all ready, none leaving."""
        ready = [pod for pod in self.pods if pod.ready and not pod.deleting]
        return sum(
            1
            for index, pods in by_replica(ready).items()
            if index < self.workload.granted and len(pods) >= self.pods_per_replica
        )

    def leaving(self, size: int) -> tuple[Pod, ...]:
        """The pods that go when the job shrinks to `size`, in the order in which they go: an
        Indexed Job gives up its highest indexes (KEP-3715)."""
        pods = [
            pod
            for pod in self.pods
            if pod.phase not in ENDED and not pod.deleting and (pod.replica_index or 0) >= size
        ]
        return tuple(sorted(pods, key=lambda p: (-(p.replica_index or 0), p.name)))


def load_jobs(snapshot: ClusterSnapshot, policies: PolicySet) -> list[Job]:
    """Every managed workload as a job, in order of priority, age and name."""
    pods = pods_by_workload(snapshot)
    flights = {flight.workload: flight for flight in snapshot.in_flight}
    ordered = sorted(
        (w for w in snapshot.workloads if w.managed),
        key=lambda w: (-w.priority, w.created_at, w.key),
    )
    return [_job(snapshot, policies, w, pods.get(w.key, ()), flights) for w in ordered]


def _job(
    snapshot: ClusterSnapshot,
    policies: PolicySet,
    workload: Workload,
    pods: Iterable[Pod],
    flights: Mapping[WorkloadKey, InFlight],
) -> Job:
    policy, problem = usable_policy(workload, policies)
    flight = flights.get(workload.key)
    job = Job(
        workload=workload,
        policy=policy,
        sizes=valid_sizes(policy) if policy else (),
        pods=tuple(pods),
        history=snapshot.history.get(workload.key, History()),
        report=snapshot.reports.get(workload.key),
        in_flight=flight,
        target=flight.to_replicas if flight else workload.granted,
        fixed=problem,
    )
    if flight and not problem:
        job.fixed = because(ReasonCode.IN_FLIGHT, from_=flight.from_replicas, to=flight.to_replicas)
    return job


def usable_policy(
    workload: Workload, policies: PolicySet
) -> tuple[ElasticityPolicy | None, Reason | None]:
    """The job's policy, or why it can't be resized."""
    if workload.finished:
        return None, because(ReasonCode.FINISHED)
    if not workload.policy:
        return None, because(ReasonCode.NOT_ELASTIC)
    policy = policies.get(workload.policy)
    if policy is None:
        return None, because(ReasonCode.POLICY_NOT_FOUND, policy=workload.policy)
    errors = validate(policy)
    if errors:
        return None, because(
            ReasonCode.POLICY_INVALID,
            policy=policy.name,
            field=errors[0].field,
            problem=errors[0].message,
        )
    return policy, None
