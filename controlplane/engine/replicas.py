"""What a job's pods say of its replicas. Depends on the workload and its pods alone, so it is
reckoned once and kept while neither changes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from controlplane.engine.shapes import ENDED, PodShape, holds, shape_of
from controlplane.engine.snapshot import Pod, Workload
from controlplane.engine.types import PodPhase, VictimChoice

Rank = Callable[[Pod], int]


class Replicas:
    """`running`: replicas below the granted size whose pods are all ready, none leaving.
    `completed`: those whose pods have all succeeded. `stuck`: indexes of replicas that don't run
    though every pod of theirs has a place (no capacity helps them). `standing`: index -> pods that
    haven't ended and aren't leaving; `highest` of them. `missing`: pods of granted replicas that
    have no place. `whole`: every granted replica runs (or has finished), and none besides."""

    __slots__ = (
        "accelerators", "amounts", "completed", "highest", "missing", "placed", "pods", "running",
        "shape", "size", "standing", "stuck", "whole",
    )  # fmt: skip

    def __init__(self, workload: Workload, pods: Sequence[Pod], rank: Rank = lambda pod: 0) -> None:
        """`rank`: among victims that can be named, the lowest goes first."""
        self.size = workload.shape.pods_per_replica
        self.shape: PodShape = shape_of(workload.shape)
        name, n = (self.shape.accelerators or (("accelerators", 0),))[0]
        #: the accelerator that a replica asks for, and how many; all of them
        self.accelerators = (name, n * self.size)
        self.amounts = tuple((name, n * self.size) for name, n in self.shape.accelerators)
        self.pods = numbered(workload, pods, rank)
        placed: Counter[int] = Counter()
        ready: Counter[int] = Counter()
        done: Counter[int] = Counter()
        standing: dict[int, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            index = pod.replica_index
            if pod.phase is PodPhase.SUCCEEDED and index is not None:
                done[index] += 1
            if pod.phase in ENDED or pod.deleting:
                continue
            standing[index or 0].append(pod)
            if index is None:
                continue
            if pod.ready:
                ready[index] += 1
            if holds(pod):
                placed[index] += 1
        self.standing: Mapping[int, list[Pod]] = standing
        whole, granted = self.size, workload.granted
        self.running = sum(1 for i, n in ready.items() if i < granted and n >= whole)
        self.completed = sum(1 for i, n in done.items() if i < granted and n >= whole)
        self.stuck = tuple(
            i for i, n in placed.items() if i < granted and n >= whole > ready.get(i, 0)
        )
        placed.update(done)
        self.placed: Mapping[int, int] = placed
        self.highest = max(standing, default=-1)
        self.missing = self.missing_pods(granted)
        have_run = self.running + self.completed >= granted
        self.whole = have_run and not self.missing and self.highest < granted

    def missing_pods(self, target: int) -> int:
        """Pods of the first `target` replicas that aren't on a node (or on their way off it). One
        that has succeeded is never made anew, so it isn't missing."""
        size = self.size
        found = sum([min(n, size) for index, n in self.placed.items() if index < target])
        return max(0, target * size - found)

    def leaving(self, size: int) -> list[Pod]:
        """The pods that go when the job shrinks to `size`, in the order in which they go."""
        if self.highest < size:
            return []
        indexes = sorted((i for i in self.standing if i >= size), reverse=True)
        return [pod for i in indexes for pod in sorted(self.standing[i], key=lambda p: p.name)]

    def between(self, before: int, after: int) -> list[Pod]:
        """Of the pods that go on the way to `after`, those of replicas below `before`."""
        if self.highest < after:
            return []
        indexes = sorted((i for i in self.standing if after <= i < before), reverse=True)
        return [pod for i in indexes for pod in sorted(self.standing[i], key=lambda p: p.name)]


def numbered(workload: Workload, pods: Sequence[Pod], rank: Rank) -> tuple[Pod, ...]:
    """The pods with their replica indexes. Where victims can be named there are none of the API's
    own: the numbers then say in which order replicas stay, the highest leaves first: those that the
    workload names (kuberay 208), that don't run, whose node has a cause (mpi-operator 410), of the
    lowest deletion cost; then node by node, so that whole nodes come free (kueue 1309), the newest
    first."""
    if workload.victims is VictimChoice.HIGHEST_INDEX:
        return tuple(pods)
    hints = {name: len(workload.hints) - i for i, name in enumerate(workload.hints)}
    groups: dict[object, list[Pod]] = defaultdict(list)
    newest: dict[str, float] = defaultdict(float)
    for pod in pods:
        groups[pod.uid if pod.replica_index is None else pod.replica_index].append(pod)
        newest[pod.node or ""] = max(newest[pod.node or ""], pod.created_at)

    def stays(group: list[Pod]) -> tuple[object, ...]:
        first = min(group, key=lambda pod: pod.name)
        return (
            any(pod.deleting or pod.phase in ENDED for pod in group),
            max(hints.get(pod.name, 0) for pod in group),
            not all(pod.ready for pod in group),
            -min(rank(pod) for pod in group),
            -max(pod.deletion_cost for pod in group),
            newest[first.node or ""],
            first.node or "",
            max(pod.created_at for pod in group),
            first.name,
        )

    ordered = sorted(groups.values(), key=stays)
    return tuple(
        dataclasses.replace(pod, replica_index=i)
        for i, group in enumerate(ordered)
        for pod in group
    )
