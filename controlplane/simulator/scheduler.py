"""The scheduler of the virtual cluster: binds pending pods, the highest priority first.

A replica is bound as a whole or not at all; a job that hasn't started, as many replicas as it was
granted or none (a gang). A job's pods are packed on the fewest nodes: those that it already has,
then the one that its rest fills best, else the emptiest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from controlplane.engine.snapshot import Pod
from controlplane.simulator.cluster import VirtualCluster
from controlplane.simulator.runtime import SimJob

Bind = Callable[[Pod, str], None]


class Scheduler:
    """`packing`: "packed", or "spread" (the emptiest node for each pod, as a scheduler that knows
    nothing of training does). `whole`: a job runs with all of its replicas or not at all."""

    def __init__(self, cluster: VirtualCluster, packing: str, *, whole: bool) -> None:
        self._cluster = cluster
        self._spread = packing == "spread"
        self._whole = whole

    def bind_pending(self, bind: Bind) -> int:
        """Bind what fits; how many pods were."""
        pending = self._cluster.pending.values()
        if not pending:
            return 0
        groups: dict[tuple[int, float, str], list[Pod]] = defaultdict(list)
        for pod in pending:
            job = self._cluster.jobs.get(pod.workload) if pod.workload else None
            since = self._cluster.workloads[job.key].created_at if job else pod.created_at
            name = job.spec.name if job else pod.name
            groups[-pod.priority, since, name].append(pod)
        bound = 0
        hopeless: set[tuple[tuple[str, int], ...]] = set()
        for _, pods in sorted(groups.items()):
            job = self._cluster.jobs.get(pods[0].workload) if pods[0].workload else None
            bound += self._job(job, pods, bind) if job else self._single(pods, bind, hopeless)
        return bound

    def _single(
        self, pods: Iterable[Pod], bind: Bind, hopeless: set[tuple[tuple[str, int], ...]]
    ) -> int:
        """Inelastic pods, one by one; a shape that found no node isn't tried again."""
        bound = 0
        for pod in pods:
            shape = (
                *pod.requests.items(),
                *((f"{k}={v}", 0) for k, v in pod.node_selector.items()),
            )
            if shape in hopeless:
                continue
            node = self._best(pod)
            if node is None:
                hopeless.add(shape)
                continue
            bind(pod, node)
            bound += 1
        return bound

    def _job(self, job: SimJob, pods: Sequence[Pod], bind: Bind) -> int:
        replicas: dict[int, list[Pod]] = defaultdict(list)
        for pod in pods:
            replicas[pod.replica_index or 0].append(pod)
        if any(pod.deleting for pod in job.pods.values()) and not job.placement and job.started:
            return 0  # starts anew: everything of the old attempt leaves first
        gang = self._whole or not any(pod.node for pod in job.pods.values())
        units = [pods] if gang else [replicas[index] for index in sorted(replicas)]
        bound = 0
        for unit in units:
            places = self._places(job, unit)
            if places is None:
                break
            for pod, node in zip(unit, places, strict=True):
                bind(pod, node)
            bound += len(unit)
        return bound

    def _places(self, job: SimJob, pods: Sequence[Pod]) -> list[str] | None:
        """A node for each pod, or None if they don't all fit. Nothing is taken."""
        room = self._room(pods[0])
        if sum(room.values()) < len(pods):
            return None
        if self._spread:
            return _spread(room, len(pods))
        held = {pod.node for pod in job.pods.values() if pod.node and not pod.deleting}
        return _packed(room, len(pods), held)

    def _room(self, pod: Pod) -> dict[str, int]:
        """How many pods of this shape each node takes, where that is any."""
        found = {}
        for name, node in self._cluster.nodes.items():
            if not node.ready or node.unschedulable or not _selected(pod, node.labels):
                continue
            free = self._cluster.free[name]
            fits = min(free.get(key, 0) // n for key, n in pod.requests.items() if n)
            if fits > 0:
                found[name] = fits
        return found

    def _best(self, pod: Pod) -> str | None:
        """Best fit: the node that keeps the fewest accelerators; by name among equals."""
        resource = self._cluster.resource
        best: tuple[int, str] | None = None
        for name in self._room(pod):
            left = self._cluster.free[name].get(resource, 0)
            if best is None or (left, name) < best:
                best = (left, name)
        return best[1] if best else None


def _selected(pod: Pod, labels: object) -> bool:
    assert isinstance(labels, dict)
    return all(labels.get(key) == value for key, value in pod.node_selector.items())


def _spread(room: dict[str, int], pods: int) -> list[str]:
    places = []
    for _ in range(pods):
        name = min(room, key=lambda n: (-room[n], n))
        room[name] -= 1
        places.append(name)
    return places


def _packed(room: dict[str, int], pods: int, held: Iterable[str]) -> list[str]:
    """The fewest nodes: those held already, the fullest first; then the tightest that takes all
    that is left; else the emptiest, and so on."""
    places: list[str] = []
    for name in sorted(set(held) & room.keys(), key=lambda n: (room[n], n)):
        places += [name] * min(room.pop(name), pods - len(places))
    while len(places) < pods:
        left = pods - len(places)
        enough = [name for name, n in room.items() if n >= left]
        if enough:
            name = min(enough, key=lambda n: (room[n], n))
        else:
            name = min(room, key=lambda n: (-room[n], n))
        places += [name] * min(room.pop(name), left)
    return places
