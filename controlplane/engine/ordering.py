"""What waits for accelerators, and in which order it is served: priority, then repairs of running
jobs before anything new, then age, then name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from controlplane.engine.jobs import Job
from controlplane.engine.placement import ENDED, PodShape, place_of, shape_of
from controlplane.engine.policy import PolicySet
from controlplane.engine.snapshot import Pod
from controlplane.engine.topology import Within
from controlplane.engine.types import ReclaimPolicy, WorkloadKey


class DemandKind(IntEnum):
    """In the order in which they are served within one priority."""

    REPAIR = 0
    PENDING = 1
    START = 2


@dataclass(frozen=True, slots=True)
class Demand:
    """`units` groups of `pods_per_unit` pods; the pods of one unit only help together. `reclaims`:
    what it may take from others of lower priority. `job`: whose replicas these are. `queue`: whose
    quota they count against, "" for none."""

    kind: DemandKind
    name: str
    workload: WorkloadKey | None
    priority: int
    since: float
    shape: PodShape
    pods_per_unit: int
    units: int
    reclaims: ReclaimPolicy
    priority_class: str = ""
    job: Job | None = None
    queue: str = ""
    within: Within | None = None
    #: a start that was commanded: its places are promised
    firm: bool = False
    #: the first of the pods, by name: two demands of one workload are told apart by it
    first: str = ""
    #: replicas that the job was granted beyond its minimum: they only take what is free
    above_minimum: bool = False

    @property
    def order(self) -> tuple[bool, int, int, float, str, str]:
        return (not self.firm, -self.priority, self.kind, self.since, self.name, self.first)

    @property
    def likeness(self) -> tuple[object, ...]:
        """What decides whether it can be served: a demand like one that couldn't be isn't tried
        again in the same cycle (kueue 9715)."""
        topology = self.within if self.within is None or self.within.required else None
        return (
            self.shape, self.pods_per_unit, self.priority, self.reclaims, self.queue, topology,
        )  # fmt: skip

    @property
    def accelerator(self) -> tuple[str, int]:
        """The accelerator that a pod of it asks for, and how many."""
        return (self.shape.accelerators or (("accelerators", 0),))[0]


def demands(
    waiting: Iterable[Pod], jobs: Iterable[Job], busy: Iterable[Job], policies: PolicySet
) -> list[Demand]:
    """Everything that waits, in the order in which it is served. `waiting`: pods that no node has
    taken. `busy`: those of the jobs that may need something."""
    planned = {job.key for job in jobs if job.policy is not None}
    found = [*_pending_pods(waiting, planned, policies)]
    for job in busy:
        found.extend(_of_job(job, policies))
    return sorted(found, key=lambda demand: demand.order)


def waits(pod: Pod) -> bool:
    """Whether no node has taken the pod yet."""
    return not (pod.deleting or place_of(pod) or pod.phase in ENDED)


def _pending_pods(
    waiting: Iterable[Pod], planned: set[WorkloadKey], policies: PolicySet
) -> Iterable[Demand]:
    """Pods that ask for accelerators, equal ones together. Those of a job that is planned are
    counted by its replicas instead."""
    groups: dict[tuple[str, int, PodShape], list[Pod]] = defaultdict(list)
    for pod in waiting:
        if pod.workload in planned:
            continue
        shape = shape_of(pod)
        if shape.accelerators:
            name = str(pod.workload or WorkloadKey("Pod", pod.namespace, pod.name))
            groups[name, pod.priority, shape].append(pod)
    for (name, priority, shape), pods in groups.items():
        first = min(pods, key=lambda pod: (pod.created_at, pod.name))
        yield Demand(
            kind=DemandKind.PENDING,
            name=name,
            workload=first.workload,
            priority=priority,
            since=first.created_at,
            shape=shape,
            pods_per_unit=1,
            units=len(pods),
            reclaims=policies.reclaim_policy(first.priority_class),
            priority_class=first.priority_class,
            first=first.name,
        )


def _of_job(job: Job, policies: PolicySet) -> Iterable[Demand]:
    """What a job needs before anything grows: its minimum, then what it was granted.

    A job that isn't there yet, or has less than its minimum, gets all that it misses or nothing:
    one unit, a gang.
    """
    if job.policy is None or _has_all(job):
        return
    for_minimum, above = missing_replicas(job)
    if not for_minimum and not above:
        return
    may = policies.reclaim_policy(job.workload.priority_class)
    if starts(job):
        yield _demand(job, DemandKind.START, for_minimum * job.pods_per_replica, 1, may)
    elif for_minimum and _has_no_domain(job):
        pods = for_minimum * job.pods_per_replica  # they choose the domain, together
        yield _demand(job, DemandKind.REPAIR, pods, 1, may)
        return
    elif for_minimum:
        yield _demand(job, DemandKind.REPAIR, job.pods_per_replica, for_minimum, may)
    if above:
        never = ReclaimPolicy.NEVER
        yield _demand(job, DemandKind.REPAIR, job.pods_per_replica, above, never, above=True)


def _has_no_domain(job: Job) -> bool:
    """Whether its pods must lie in one topology domain and none is there yet."""
    return job.within is not None and job.within.required and job.within.domain is None


def _has_all(job: Job) -> bool:
    """Whether it has every replica that it was granted, and no other size is on its way."""
    workload = job.workload
    settled = job.target == workload.granted >= job.minimum
    return settled and not workload.suspended and not job.replicas.missing


def starts(job: Job) -> bool:
    """Whether it has still to be given its minimum (a start under way has been)."""
    if job.in_flight is not None:
        return False
    return job.workload.suspended or job.target < job.minimum


def missing_replicas(job: Job) -> tuple[int, int]:
    """Replicas without a place: those that the minimum needs, and those above it."""
    if job.in_flight is not None and job.in_flight.to_replicas == 0:
        return 0, 0
    if job.workload.suspended and job.in_flight is None:
        return job.minimum, 0
    target = max(job.target, job.minimum)
    missing = -(-job.replicas.missing_pods(target) // job.pods_per_replica)
    for_minimum = max(0, missing - (target - job.minimum))
    return for_minimum, missing - for_minimum


def units_left(demand: Demand) -> int:
    """Units that a demand still needs: a job's target may have fallen since it was listed."""
    job = demand.job
    if job is not None and job.target == 0 < job.workload.granted and not job.workload.suspended:
        return 0  # it was preempted for somebody before it
    if demand.job is None or demand.kind is DemandKind.START:
        return demand.units
    return min(demand.units, missing_replicas(demand.job)[1 if demand.above_minimum else 0])


def _demand(
    job: Job,
    kind: DemandKind,
    pods: int,
    units: int,
    reclaims: ReclaimPolicy,
    *,
    above: bool = False,
) -> Demand:
    since = job.history.short_since
    return Demand(
        kind=kind,
        name=job.name,
        workload=job.key,
        priority=job.workload.priority,
        since=job.workload.created_at if since is None else since,
        shape=job.shape,
        pods_per_unit=pods,
        units=units,
        reclaims=reclaims,
        priority_class=job.workload.priority_class,
        job=job,
        queue=job.workload.queue,
        within=job.within,
        above_minimum=above,
        firm=job.in_flight is not None and job.workload.suspended,
    )
