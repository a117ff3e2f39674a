"""What fits where. Capacity is a pod on a node, never a sum of accelerators.

Two ledgers: what is free **now**, and what is free **later**, when everything that is leaving has
left. A pod that waits for a release takes from the second only; whatever wants to start at once
needs both, so nothing is started on a place that somebody is already waiting for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.engine.snapshot import ClusterSnapshot, Node, Pod, ReplicaShape
from controlplane.engine.types import PodPhase, Toleration

Amounts = dict[str, int]
Ledger = dict[str, Amounts]

REPELLING = ("NoSchedule", "NoExecute")
ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)
#: requests that are not accelerators
ORDINARY = ("cpu", "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True)
class PodShape:
    """What decides where a pod can go. Hashable: equal shapes are tried once."""

    requests: tuple[tuple[str, int], ...]
    tolerations: tuple[Toleration, ...]
    node_selector: tuple[tuple[str, str], ...]

    @property
    def accelerators(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, n) for name, n in self.requests if is_accelerator(name))


def shape_of(source: Pod | ReplicaShape) -> PodShape:
    """The shape of a pod, or of each pod of a replica."""
    return PodShape(
        requests=tuple(sorted((k, v) for k, v in source.requests.items() if v > 0)),
        tolerations=tuple(sorted(set(source.tolerations))),
        node_selector=tuple(sorted(source.node_selector.items())),
    )


def is_accelerator(resource: str) -> bool:
    """Extended resources count as accelerators; the snapshot carries no others of that form."""
    return resource not in ORDINARY and not resource.startswith("hugepages-")


def holds(pod: Pod) -> bool:
    """Whether a pod occupies its place: bound and not ended, or nominated and not leaving."""
    if pod.phase in ENDED:
        return False
    return pod.node is not None or (pod.nominated_node is not None and not pod.deleting)


def place_of(pod: Pod) -> str | None:
    return pod.node or pod.nominated_node


def accepts(node: Node, shape: PodShape) -> bool:
    """Whether a node may take new pods of a shape at all, whatever room it has."""
    if not node.ready or node.unschedulable:
        return False
    if any(node.labels.get(key) != value for key, value in shape.node_selector):
        return False
    return all(
        any(toleration.tolerates(taint) for toleration in shape.tolerations)
        for taint in node.taints
        if taint.effect in REPELLING
    )


class Capacity:
    """The two ledgers of one cycle, with marks to go back to."""

    def __init__(self, nodes: Sequence[Node], pods: Iterable[Pod]) -> None:
        self._nodes = tuple(sorted(nodes, key=lambda node: node.name))
        self._now: Ledger = {node.name: dict(node.allocatable) for node in self._nodes}
        self._later: Ledger = {node.name: dict(node.allocatable) for node in self._nodes}
        self._candidates: dict[PodShape, tuple[str, ...]] = {}
        self._log: list[tuple[Amounts, str, int]] = []
        #: shapes that found no place, until something is given back (kueue 9715)
        self._full: set[tuple[PodShape, int]] = set()
        for pod in pods:
            place = place_of(pod)
            if place not in self._now or not holds(pod):
                continue
            self._change(self._now[place], pod.requests, -1)
            if not pod.deleting:
                self._change(self._later[place], pod.requests, -1)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> Capacity:
        """Free capacity of a snapshot; pods with a deletion timestamp are leaving."""
        return cls(snapshot.nodes, snapshot.pods)

    # -- taking and giving -------------------------------------------------------------------

    def take_now(self, shape: PodShape, pods: int = 1) -> tuple[str, ...] | None:
        """Places for all the pods that are free now and later too; None, and nothing taken, if
        they don't all fit."""
        return self._take(shape, pods, (self._now, self._later))

    def take_later(self, shape: PodShape, pods: int = 1) -> tuple[str, ...] | None:
        """Places that will be free once what leaves has left."""
        return self._take(shape, pods, (self._later,))

    def release(self, pod: Pod) -> None:
        """The pod will leave: its place is free later."""
        place = place_of(pod)
        if place in self._later and holds(pod) and not pod.deleting:
            self._change(self._later[place], pod.requests, 1)
            self._full.clear()

    def fitting(self, shape: PodShape, most: int) -> int:
        """How many pods of a shape fit now, counted up to `most`; nothing is taken."""
        mark = self.mark()
        n = 0
        while n < most and self.take_now(shape) is not None:
            n += 1
        self.rollback(mark)
        return n

    # -- marks -------------------------------------------------------------------------------

    def mark(self) -> int:
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark."""
        if len(self._log) > mark:
            self._full.clear()
        while len(self._log) > mark:
            amounts, name, delta = self._log.pop()
            amounts[name] -= delta

    # -- inside ------------------------------------------------------------------------------

    def _take(
        self, shape: PodShape, pods: int, ledgers: tuple[Ledger, ...]
    ) -> tuple[str, ...] | None:
        mark = self.mark()
        places = []
        known = (shape, len(ledgers))
        for _ in range(pods):
            place = None if known in self._full else self._best(shape, ledgers)
            if place is None:
                self._full.add(known)
                self.rollback(mark)
                return None
            for ledger in ledgers:
                self._change(ledger[place], dict(shape.requests), -1)
            places.append(place)
        return tuple(places)

    def _best(self, shape: PodShape, ledgers: tuple[Ledger, ...]) -> str | None:
        """Best fit: the node that keeps the fewest accelerators, so that whole nodes stay whole;
        by name among equals."""
        best: tuple[int, str] | None = None
        for name in self._accepting(shape):
            if not all(_fits(shape, ledger[name]) for ledger in ledgers):
                continue
            left = sum(ledgers[0][name].get(r, 0) - n for r, n in shape.accelerators)
            if best is None or left < best[0]:
                best = (left, name)
        return best[1] if best else None

    def _accepting(self, shape: PodShape) -> tuple[str, ...]:
        found = self._candidates.get(shape)
        if found is None:
            found = tuple(node.name for node in self._nodes if accepts(node, shape))
            self._candidates[shape] = found
        return found

    def _change(self, amounts: Amounts, requests: Mapping[str, int], sign: int) -> None:
        for name, n in requests.items():
            amounts[name] = amounts.get(name, 0) + sign * n
            self._log.append((amounts, name, sign * n))


def _fits(shape: PodShape, free: Amounts) -> bool:
    return all(free.get(name, 0) >= n for name, n in shape.requests)


def by_replica(pods: Iterable[Pod]) -> dict[int, list[Pod]]:
    """Pods that haven't ended, by replica index."""
    found: dict[int, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.replica_index is not None and pod.phase not in ENDED:
            found[pod.replica_index].append(pod)
    return found
