"""What policies of fixed sizes know of free places: a pod on a node, never a sum."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.engine.snapshot import Pod
from controlplane.simulator.cluster import VirtualCluster
from controlplane.simulator.runtime import SimJob


class Room:
    """Free resources by node once everything that is leaving has left; a working copy."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._free = {
            name: dict(cluster.free[name])
            for name, node in cluster.nodes.items()
            if node.ready and not node.unschedulable
        }
        #: of each shape, the fewest pods that found no room: more won't either, until some is given
        self._too_many: dict[tuple[tuple[str, object], ...], int] = {}
        for pod in cluster.pods.values():
            if pod.deleting and pod.node in self._free:
                self._release(pod.node, pod)

    def copy(self) -> Room:
        other = object.__new__(Room)
        other._cluster = self._cluster
        other._too_many = dict(self._too_many)
        other._free = {name: dict(free) for name, free in self._free.items()}
        return other

    def become(self, other: Room) -> None:
        self._free, self._too_many = other._free, other._too_many

    def take(self, job: SimJob, replicas: int) -> bool:
        """Places for all pods of a job that starts; nothing is taken unless all fit."""
        pods = replicas * job.spec.pods_per_replica
        return self._take(job.spec.requests, job.spec.node_selector, pods)

    def take_missing(self, job: SimJob) -> bool:
        """Places for its pods that have none."""
        missing = sum(pod.node is None and not pod.deleting for pod in job.pods.values())
        return self._take(job.spec.requests, job.spec.node_selector, missing)

    def take_pod(self, pod: Pod) -> bool:
        return self._take(pod.requests, pod.node_selector, 1)

    def give(self, job: SimJob) -> None:
        """The job leaves."""
        self._too_many.clear()
        for pod in job.pods.values():
            if not pod.deleting and pod.node in self._free:
                self._release(pod.node, pod)

    def all_for_training(self) -> int:
        """Accelerators that no inelastic pod holds or waits for, as a sum."""
        jobs, resource = self._cluster.jobs, self._cluster.resource
        held = sum(
            pod.requests.get(resource, 0)
            for pod in self._cluster.pods.values()
            if pod.workload in jobs and not pod.deleting and pod.node in self._free
        )
        waiting = sum(
            pod.requests.get(resource, 0)
            for pod in self._cluster.pending.values()
            if pod.workload not in jobs
        )
        return sum(free.get(resource, 0) for free in self._free.values()) + held - waiting

    def _take(self, requests: Mapping[str, int], selector: Mapping[str, str], pods: int) -> bool:
        shape = (*requests.items(), *selector.items())
        if pods >= self._too_many.get(shape, pods + 1):
            return False
        taken: list[str] = []
        for name, free in sorted(self._free.items(), key=self._fullest):
            labels = self._cluster.nodes[name].labels
            if any(labels.get(key) != value for key, value in selector.items()):
                continue
            fits = min((free.get(key, 0) // n for key, n in requests.items() if n), default=0)
            taken += [name] * min(max(0, fits), pods - len(taken))
            if len(taken) == pods:
                break
        if len(taken) < pods:
            self._too_many[shape] = pods
            return False
        for name in taken:
            free = self._free[name]
            for key, n in requests.items():
                free[key] -= n
        return True

    def _fullest(self, item: tuple[str, dict[str, int]]) -> tuple[int, str]:
        return (item[1].get(self._cluster.resource, 0), item[0])

    def _release(self, node: str, pod: Pod) -> None:
        free = self._free[node]
        for name, n in pod.requests.items():
            free[name] = free.get(name, 0) + n
