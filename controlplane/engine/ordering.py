"""What waits for accelerators, and in which order it is served: priority, then repairs of running
jobs before anything new, then age, then name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from controlplane.engine.accounting import missing_pods
from controlplane.engine.jobs import Job
from controlplane.engine.placement import ENDED, PodShape, place_of, shape_of
from controlplane.engine.snapshot import ClusterSnapshot, Pod
from controlplane.engine.types import WorkloadKey


class DemandKind(IntEnum):
    """In the order in which they are served within one priority."""

    REPAIR = 0
    PENDING = 1
    START = 2


@dataclass(frozen=True, slots=True)
class Demand:
    """`units` groups of `pods_per_unit` pods; the pods of one unit only help together. `reclaims`:
    whether it may take from elastic jobs of lower priority. `job`: whose replicas these are."""

    kind: DemandKind
    name: str
    workload: WorkloadKey | None
    priority: int
    since: float
    shape: PodShape
    pods_per_unit: int
    units: int
    reclaims: bool
    job: Job | None = None

    @property
    def order(self) -> tuple[int, int, float, str]:
        return (-self.priority, self.kind, self.since, self.name)


def demands(snapshot: ClusterSnapshot, jobs: Iterable[Job]) -> list[Demand]:
    """Everything that waits, in the order in which it is served."""
    jobs = list(jobs)
    planned = {job.workload.key for job in jobs if job.policy is not None}
    found = [*_pending_pods(snapshot, planned)]
    for job in jobs:
        found.extend(_of_job(job))
    return sorted(found, key=lambda demand: demand.order)


def _pending_pods(snapshot: ClusterSnapshot, planned: set[WorkloadKey]) -> Iterable[Demand]:
    """Pods that no node has taken and that ask for accelerators, equal ones together. Those of a
    job that is planned are counted by its replicas instead."""
    groups: dict[tuple[str, int, PodShape], list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.phase in ENDED or pod.deleting or place_of(pod) or pod.workload in planned:
            continue
        shape = shape_of(pod)
        if shape.accelerators:
            name = str(pod.workload or WorkloadKey("Pod", pod.namespace, pod.name))
            groups[name, pod.priority, shape].append(pod)
    for (name, priority, shape), pods in groups.items():
        yield Demand(
            kind=DemandKind.PENDING,
            name=name,
            workload=pods[0].workload,
            priority=priority,
            since=min(pod.created_at for pod in pods),
            shape=shape,
            pods_per_unit=1,
            units=len(pods),
            reclaims=True,
        )


def _of_job(job: Job) -> Iterable[Demand]:
    """What a job needs before anything grows: its minimum, then what it was granted.

    A job that isn't there yet, or has less than its minimum, gets all that it misses or nothing:
    one unit, a gang.
    """
    if job.policy is None:
        return
    for_minimum, above = missing_replicas(job)
    if starts(job):
        yield _demand(job, DemandKind.START, for_minimum * job.pods_per_replica, 1, True)
    elif for_minimum:
        yield _demand(job, DemandKind.REPAIR, job.pods_per_replica, for_minimum, True)
    if above:
        yield _demand(job, DemandKind.REPAIR, job.pods_per_replica, above, False)


def starts(job: Job) -> bool:
    """Whether it has still to be given its minimum (a start under way has been)."""
    if job.in_flight is not None:
        return False
    return job.workload.suspended or job.target < job.minimum


def missing_replicas(job: Job) -> tuple[int, int]:
    """Replicas without a place: those that the minimum needs, and those above it."""
    suspended = job.workload.suspended and job.in_flight is None
    target = job.minimum if suspended else max(job.target, job.minimum)
    pods = {job.workload.key: () if suspended else job.pods}
    missing = -(-missing_pods(job.workload, target, pods) // job.pods_per_replica)
    for_minimum = max(0, missing - (target - job.minimum))
    return for_minimum, missing - for_minimum


def units_left(demand: Demand) -> int:
    """Units that a demand still needs: a job's target may have fallen since it was listed."""
    if demand.job is None or demand.kind is DemandKind.START:
        return demand.units
    return min(demand.units, missing_replicas(demand.job)[0 if demand.reclaims else 1])


def _demand(job: Job, kind: DemandKind, pods: int, units: int, reclaims: bool) -> Demand:
    since = job.history.short_since
    return Demand(
        kind=kind,
        name=str(job.workload.key),
        workload=job.workload.key,
        priority=job.workload.priority,
        since=job.workload.created_at if since is None else since,
        shape=job.shape,
        pods_per_unit=pods,
        units=units,
        reclaims=reclaims,
        job=job,
    )
