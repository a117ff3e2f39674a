"""The scheduler of the virtual cluster: binds pending pods, the highest priority first.

A replica is bound as a whole or not at all; a job that hasn't started, as many replicas as it was
granted or none (a gang). A job's pods are packed on the fewest nodes: those that it already has,
then the one that its rest fills best, else the emptiest.
"""

from __future__ import annotations

import heapq
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
        room = self._room(pods[0])
        chosen = _whole_units([replicas[i] for i in sorted(replicas)], sum(room.values()))
        gang = self._whole or not any(pod.node for pod in job.pods.values())
        if not chosen or (gang and len(chosen) < len(pods)):
            return 0
        for pod, node in zip(chosen, self._places(job, room, len(chosen)), strict=True):
            bind(pod, node)
        return len(chosen)

    def _places(self, job: SimJob, room: dict[str, int], pods: int) -> list[str]:
        """A node for each of so many pods, of those with room."""
        if self._spread:
            return _spread(room, pods)
        held = {pod.node for pod in job.pods.values() if pod.node and not pod.deleting}
        return _packed(room, pods, held)

    def _room(self, pod: Pod) -> dict[str, int]:
        """How many pods of this shape each node takes, where that is any."""
        found = {}
        requests = [(key, n) for key, n in pod.requests.items() if n]
        for name, free in self._cluster.free.items():
            fits = min([free.get(key, 0) // n for key, n in requests])
            if fits > 0 and self._takes(name, pod):
                found[name] = fits
        return found

    def _best(self, pod: Pod) -> str | None:
        """Best fit: the node that keeps the fewest accelerators; by name among equals."""
        resource = self._cluster.resource
        needed, requests = pod.requests.get(resource, 0), pod.requests.items()
        best: tuple[int, str] | None = None
        for name, free in self._cluster.free.items():
            left = free.get(resource, 0)
            if left < needed or (best is not None and (left, name) >= best):
                continue
            if all(free.get(key, 0) >= n for key, n in requests) and self._takes(name, pod):
                best = (left, name)
        return best[1] if best else None

    def _takes(self, name: str, pod: Pod) -> bool:
        """Whether the node takes new pods, and is one that the pod selects."""
        node = self._cluster.nodes[name]
        if not node.ready or node.unschedulable:
            return False
        return not pod.node_selector or all(
            node.labels.get(key) == value for key, value in pod.node_selector.items()
        )


def _whole_units(units: Iterable[Sequence[Pod]], room: int) -> list[Pod]:
    """The pods of the first units that fit into a room for so many pods, each unit whole."""
    chosen: list[Pod] = []
    for unit in units:
        if len(chosen) + len(unit) > room:
            break
        chosen.extend(unit)
    return chosen


def _spread(room: dict[str, int], pods: int) -> list[str]:
    """The emptiest node for each."""
    queue = [(-n, name) for name, n in room.items()]
    heapq.heapify(queue)
    places = []
    for _ in range(pods):
        n, name = queue[0]
        heapq.heapreplace(queue, (n + 1, name))
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
