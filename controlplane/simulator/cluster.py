"""The virtual cluster: nodes, pods and workloads, as a snapshot shows them.

Objects that didn't change are the same objects in the next snapshot, so that a planner that
remembers can tell what changed by identity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from controlplane.engine.snapshot import (
    ClusterSnapshot,
    DemandHistory,
    Departure,
    Node,
    NodeHistory,
    Pod,
    ReplicaShape,
    Workload,
)
from controlplane.engine.types import PodPhase, PreemptionPolicy, WorkloadKey
from controlplane.simulator.reports import Told
from controlplane.simulator.runtime import SimJob
from controlplane.simulator.spec import JobSpec, PodSpec, Scenario

NAMESPACE = "sim"


class VirtualCluster:
    """State and its changes, without any notion of when: the caller gives the times (unix)."""

    def __init__(self, scenario: Scenario) -> None:
        self.resource = scenario.resource
        self.nodes: dict[str, Node] = {node.name: node for node in scenario.nodes}
        self.free: dict[str, dict[str, int]] = {
            node.name: dict(node.allocatable) for node in scenario.nodes
        }
        self.pods: dict[str, Pod] = {}
        self.on_node: dict[str, dict[str, Pod]] = defaultdict(dict)
        self.pending: dict[str, Pod] = {}
        self.workloads: dict[WorkloadKey, Workload] = {}
        self.jobs: dict[WorkloadKey, SimJob] = {}
        self.demand_history: Mapping[str, DemandHistory] = {}
        self.node_history: dict[str, NodeHistory] = {}
        #: jobs whose pods or nodes changed since the scheduler and the trainers last looked
        self.dirty: dict[WorkloadKey, None] = {}
        #: something that a plan could see has changed since it was last asked
        self.changed = True
        self._serial = 0

    # -- jobs ------------------------------------------------------------------------------------

    def add_job(self, job: SimJob, now: float) -> None:
        """It arrives, suspended."""
        self.jobs[job.key] = job
        self.workloads[job.key] = _workload(job.spec, job.key, now)
        self.changed = True

    def remove_job(self, job: SimJob) -> None:
        """It is finished: its pods, and the job itself, are gone."""
        for uid in list(job.pods):
            self.remove(uid)
        self.dirty.pop(job.key, None)
        del self.workloads[job.key]
        del self.jobs[job.key]
        self.changed = True

    def grant(self, job: SimJob, replicas: int, now: float) -> None:
        """Write a size; pods for new replicas come into being, those to leave stay until told."""
        job.granted = replicas
        old = self.workloads[job.key]
        self.workloads[job.key] = replace(
            old,
            granted=replicas,
            suspended=replicas == 0,
            generation=old.generation + 1,
            resource_version=str(old.generation + 1),
        )
        self.replenish(job, now)

    def replenish(self, job: SimJob, now: float) -> None:
        """Make the pods that the job should have and doesn't."""
        there: dict[int, int] = defaultdict(int)
        for pod in job.pods.values():
            if not pod.deleting and pod.replica_index is not None:
                there[pod.replica_index] += 1
        for index in range(job.granted):
            for part in range(there[index], job.spec.pods_per_replica):
                self._new_replica_pod(job, index, part, now)
        self._touch(job.key)

    def renumber(self, job: SimJob) -> None:
        """After named victims have left: the replicas that stay are 0..n-1 again."""
        stay = [pod for pod in job.pods.values() if not pod.deleting]
        indexes = sorted({pod.replica_index for pod in stay if pod.replica_index is not None})
        new = {old: i for i, old in enumerate(indexes)}
        for pod in stay:
            if pod.replica_index is not None and new[pod.replica_index] != pod.replica_index:
                self._store(replace(pod, replica_index=new[pod.replica_index]))

    # -- pods ------------------------------------------------------------------------------------

    def add_inelastic(self, spec: PodSpec, now: float) -> Pod:
        self._serial += 1
        pod = Pod(
            uid=f"p{self._serial}",
            namespace=NAMESPACE,
            name=spec.name,
            node=None,
            nominated_node=None,
            phase=PodPhase.PENDING,
            deleting=False,
            ready=False,
            requests=spec.requests,
            priority=spec.priority,
            priority_class=spec.priority_class,
            preemption_policy=PreemptionPolicy.NEVER,
            workload=WorkloadKey("Deployment", NAMESPACE, spec.workload),
            replica_index=None,
            tolerations=(),
            node_selector=spec.node_selector,
            created_at=now,
            labels={},
        )
        self._store(pod)
        return pod

    def bind(self, pod: Pod, node: str, *, ready: bool) -> None:
        free = self.free[node]
        for name, n in pod.requests.items():
            free[name] = free.get(name, 0) - n
        self._store(replace(pod, node=node, phase=PodPhase.RUNNING, ready=ready))

    def set_ready(self, uid: str, ready: bool) -> None:
        pod = self.pods.get(uid)
        if pod is not None and pod.ready != ready:
            self._store(replace(pod, ready=ready))

    def leave(self, uid: str, due: float) -> None:
        """A pod gets its deletion timestamp; it holds its place until it is removed."""
        pod = self.pods[uid]
        self._store(replace(pod, deleting=True, ready=False, deletion_due=due))

    def remove(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self.pending.pop(uid, None)
        if pod.node is not None:
            self.on_node[pod.node].pop(uid, None)
            free = self.free[pod.node]
            for name, n in pod.requests.items():
                free[name] += n
        self._forget(pod)
        self.changed = True

    # -- nodes -----------------------------------------------------------------------------------

    def set_node(
        self,
        name: str,
        *,
        ready: bool | None = None,
        unschedulable: bool | None = None,
        departure: Departure | None = None,
        now: float = 0.0,
    ) -> None:
        """Change a node's conditions; `departure` is replaced whenever `unschedulable` is given."""
        node = self.nodes[name]
        if ready is not None:
            since = None if ready else (node.not_ready_since or now)
            node = replace(node, ready=ready, not_ready_since=since)
        if unschedulable is not None:
            node = replace(node, unschedulable=unschedulable, departure=departure)
        self.nodes[name] = node
        self.changed = True

    def hurt(self, node: str, now: float) -> None:
        """Note that jobs lost a replica to this node."""
        old = self.node_history.get(node, NodeHistory())
        self.node_history[node] = NodeHistory(faults=(*old.faults[-63:], now))

    # -- pictures --------------------------------------------------------------------------------

    def snapshot(self, now: float, told: Told) -> ClusterSnapshot:
        """What the engine sees; `told` is what the trainers report."""
        jobs = self.jobs.values()
        reports = [(job.key, told.report(job, now)) for job in jobs]
        return ClusterSnapshot(
            cluster="simulated",
            taken_at=now,
            complete=True,
            nodes=tuple(self.nodes.values()),
            pods=tuple(self.pods.values()),
            workloads=tuple(self.workloads.values()),
            reports={key: report for key, report in reports if report is not None},
            in_flight=tuple(job.flight for job in jobs if job.flight is not None),
            history={job.key: job.history for job in jobs},
            node_history=dict(self.node_history),
            demand_history=self.demand_history,
        )

    # -- inside ----------------------------------------------------------------------------------

    def _new_replica_pod(self, job: SimJob, index: int, part: int, now: float) -> None:
        self._serial += 1
        spec = job.spec
        suffix = f"-{part}" if spec.pods_per_replica > 1 else ""
        self._store(
            Pod(
                uid=f"p{self._serial}",
                namespace=NAMESPACE,
                name=f"{spec.name}-{index}{suffix}-{self._serial}",
                node=None,
                nominated_node=None,
                phase=PodPhase.PENDING,
                deleting=False,
                ready=False,
                requests=spec.requests,
                priority=spec.priority,
                priority_class=spec.priority_class,
                preemption_policy=PreemptionPolicy.NEVER,
                workload=job.key,
                replica_index=index,
                tolerations=(),
                node_selector=spec.node_selector,
                created_at=now,
                labels={},
            )
        )

    def _store(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        if pod.node is None and not pod.deleting:
            self.pending[pod.uid] = pod
        else:
            self.pending.pop(pod.uid, None)
        if pod.node is not None:
            self.on_node[pod.node][pod.uid] = pod
        job = self.jobs.get(pod.workload) if pod.workload is not None else None
        if job is not None:
            job.pods[pod.uid] = pod
        if pod.workload is not None:
            self._touch(pod.workload)

    def _forget(self, pod: Pod) -> None:
        job = self.jobs.get(pod.workload) if pod.workload is not None else None
        if job is not None:
            job.pods.pop(pod.uid, None)
            self._touch(job.key)

    def _touch(self, key: WorkloadKey) -> None:
        if key in self.jobs:
            self.dirty[key] = None
        self.changed = True


def _workload(spec: JobSpec, key: WorkloadKey, now: float) -> Workload:
    return Workload(
        key=key,
        uid=f"w-{spec.name}",
        resource_version="1",
        generation=1,
        created_at=now,
        managed=True,
        policy=spec.elasticity.name,
        priority=spec.priority,
        priority_class=spec.priority_class,
        team=spec.team,
        queue=spec.queue,
        shape=ReplicaShape(
            pods_per_replica=spec.pods_per_replica,
            requests=spec.requests,
            node_selector=spec.node_selector,
            topology=spec.topology,
            topology_required=spec.topology_required,
        ),
        granted=0,
        suspended=True,
        finished=False,
        epoch=0,
        weight=spec.weight,
        victims=spec.victims,
    )
