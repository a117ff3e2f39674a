"""The trainers of the virtual cluster: which replicas make up a job, and what a change costs."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from controlplane.engine.snapshot import Pod
from controlplane.engine.types import WorkloadKey
from controlplane.simulator.runtime import SimJob

if TYPE_CHECKING:
    from controlplane.simulator.run import Simulation


class Trainers:
    """Each job's membership follows its pods; each change of it pauses the job."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._whole = simulation.policy.whole
        self._resource = simulation.scenario.resource

    def notice(self, job: SimJob) -> None:
        """The job's pods changed: its running replicas, and with them its pace."""
        cluster, now = self._simulation.cluster, self._simulation.now
        job.advance(now)
        job.held = sum(
            pod.requests.get(self._resource, 0)
            for pod in job.pods.values()
            if pod.node is not None and cluster.nodes[pod.node].ready
        )
        running, nodes = _whole_replicas(job)
        if self._stands(job, running, nodes.total()):
            running, nodes = frozenset(), Counter()
        if running != job.running:
            self._change_pace(job, running, nodes)
        if job.flight is not None and _as_granted(job):
            job.flight = None
            job.forget_failures()

    def _stands(self, job: SimJob, running: frozenset[str], replicas: int) -> bool:
        """A job stands below its minimum; one of fixed size until it is whole; one that starts
        while any of its pods is on its way."""
        if not job.granted or (replicas < job.spec.elasticity.min_replicas and not self._whole):
            return True
        if len(running) >= job.granted * job.spec.pods_per_replica:
            return False
        return self._whole or (not job.placement and _starting(job))

    def _change_pace(self, job: SimJob, running: frozenset[str], nodes: Counter[str]) -> None:
        simulation = self._simulation
        costs, now = simulation.costs, simulation.now
        pause = costs.resize_pause_s
        if not job.running and costs.start_pause_s is not None:
            pause = costs.start_pause_s
        if simulation.nodes.took(job.running - running):
            job.faults += 1
            job.lose(costs.lost_work_s)
            pause = pause if costs.fault_pause_s is None else costs.fault_pause_s
        job.where(running, nodes)
        if running:
            job.paused_until = max(job.paused_until, now + pause)
            if job.first_started_at is None:
                job.first_started_at = now
            simulation.agenda.at(job.paused_until, simulation.nothing)
        job.version += 1
        self._expect_finish(job)

    def _expect_finish(self, job: SimJob) -> None:
        at = job.finishes_at(self._simulation.now)
        if at < math.inf:
            self._simulation.agenda.at(at, self._finish, job.key, job.version)

    def _finish(self, key: WorkloadKey, version: int) -> None:
        job = self._simulation.cluster.jobs.get(key)
        if job is None or job.version != version:
            return
        job.advance(self._simulation.now)
        if job.done():
            self._simulation.finish(job)
        else:
            self._expect_finish(job)


def _starting(job: SimJob) -> bool:
    """Some of its pods are on their way: it waits for all of them."""
    return any(pod.node and not pod.ready and not pod.deleting for pod in job.pods.values())


def _as_granted(job: SimJob) -> bool:
    """The command in flight is done: pods as granted are ready, and the others gone."""
    needed = job.granted * job.spec.pods_per_replica
    return len(job.pods) == needed and all(p.ready and not p.deleting for p in job.pods.values())


def _whole_replicas(job: SimJob) -> tuple[frozenset[str], Counter[str]]:
    """Uids of the pods of replicas that are ready as a whole; replicas by the node of their first
    pod."""
    replicas: dict[int, list[Pod]] = {}
    for pod in job.pods.values():
        if pod.ready and not pod.deleting and pod.replica_index is not None:
            replicas.setdefault(pod.replica_index, []).append(pod)
    whole = [pods for pods in replicas.values() if len(pods) >= job.spec.pods_per_replica]
    uids = frozenset(pod.uid for pods in whole for pod in pods)
    return uids, Counter(str(pods[0].node) for pods in whole)
