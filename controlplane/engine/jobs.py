"""The working record of one elastic job during a cycle."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.engine.accounting import pods_by_workload
from controlplane.engine.decisions import Rejection
from controlplane.engine.placement import (
    ENDED,
    Capacity,
    PodShape,
    by_replica,
    holds,
    shape_of,
)
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
from controlplane.engine.types import PodPhase, WorkloadKey


@dataclass(slots=True, eq=False)
class Job:
    """`target`: replicas that this cycle gives it. `fixed`: why its size may not change in this
    cycle. `policy` and `sizes` are empty for a job that can't be planned; `shape` is each pod's."""

    workload: Workload
    shape: PodShape
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
        at = bisect_right(self.sizes, self.target)
        return self.sizes[at] if at < len(self.sizes) else None

    def lower_size(self, than: int | None = None) -> int | None:
        """The next valid size below the target (or below another size)."""
        at = bisect_left(self.sizes, self.target if than is None else than)
        return self.sizes[at - 1] if at else None

    def running(self) -> int:
        """Replicas below the target whose pods are all ready, none leaving."""
        ready = [pod for pod in self.pods if pod.ready and not pod.deleting]
        return sum(
            1
            for index, pods in by_replica(ready).items()
            if index < self.workload.granted and len(pods) >= self.pods_per_replica
        )

    def completed(self) -> int:
        """Replicas below the granted size whose pods have all succeeded."""
        done = Counter(pod.replica_index for pod in self.pods if pod.phase is PodPhase.SUCCEEDED)
        return sum(
            1
            for index, pods in done.items()
            if index is not None and index < self.workload.granted and pods >= self.pods_per_replica
        )

    def stuck(self) -> list[int]:
        """Indexes of granted replicas that don't run though every pod of theirs has a place: no
        capacity helps them."""
        found = []
        for index, pods in by_replica(self.pods).items():
            placed = [pod for pod in pods if holds(pod) and not pod.deleting]
            ready = sum(pod.ready for pod in placed)
            if len(placed) >= self.pods_per_replica > ready and index < self.workload.granted:
                found.append(index)
        return found

    def shrink_to(self, size: int, capacity: Capacity) -> None:
        """The target falls; the places of the pods that leave are free later."""
        for pod in self.freed_by(self.target, size):
            capacity.release(pod)
        self.target = size

    def freed_by(self, before: int, after: int) -> list[Pod]:
        """Pods that leave when the job goes from one size to a lower one. Those beyond what is
        granted leave anyway, and count already (`lifecycle.release_leaving`)."""
        bound = min(before, self.workload.granted)
        return [pod for pod in self.leaving(after) if (pod.replica_index or 0) < bound]

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
        shape=shape_of(workload.shape),
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
