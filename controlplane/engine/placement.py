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
        self._log: list[tuple[str, Amounts, str, int]] = []
        #: shapes that found no place: since then, the nodes where something was given back. Only
        #: these are looked at again, so equal pods that can't fit cost next to nothing
        self._full: dict[tuple[PodShape, int], set[str]] = {}
        for pod in pods:
            place = place_of(pod)
            if place not in self._now or not holds(pod):
                continue
            self._change(place, self._now, pod.requests, -1)
            if not pod.deleting:
                self._change(place, self._later, pod.requests, -1)

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
            self._change(place, self._later, pod.requests, 1)
            self._given_back(place)

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
        while len(self._log) > mark:
            node, amounts, name, delta = self._log.pop()
            amounts[name] -= delta
            if delta < 0:
                self._given_back(node)

    # -- inside ------------------------------------------------------------------------------

    def _take(
        self, shape: PodShape, pods: int, ledgers: tuple[Ledger, ...]
    ) -> tuple[str, ...] | None:
        mark = self.mark()
        places = []
        wanted = dict(shape.requests)
        for _ in range(pods):
            place = self._best(shape, ledgers)
            if place is None:
                self.rollback(mark)
                return None
            for ledger in ledgers:
                self._change(place, ledger, wanted, -1)
            places.append(place)
        return tuple(places)

    def _best(self, shape: PodShape, ledgers: tuple[Ledger, ...]) -> str | None:
        """Best fit: the node that keeps the fewest accelerators, so that whole nodes stay whole;
        by name among equals."""
        changed = self._full.get((shape, len(ledgers)))
        names = self._accepting(shape)
        if changed is not None:
            names = tuple(sorted(changed.intersection(names))) if changed else ()
        accelerators, first = shape.accelerators, ledgers[0]
        best, least = None, 0
        for name in names:
            if not all(_fits(shape, ledger[name]) for ledger in ledgers):
                continue
            free = first[name]
            left = sum([free[resource] - n for resource, n in accelerators])
            if best is None or left < least:
                best, least = name, left
                if not left:
                    break  # no other can keep less
        if best is None:
            self._full[shape, len(ledgers)] = set()
        return best

    def _given_back(self, node: str) -> None:
        for changed in self._full.values():
            changed.add(node)

    def _accepting(self, shape: PodShape) -> tuple[str, ...]:
        found = self._candidates.get(shape)
        if found is None:
            found = tuple(node.name for node in self._nodes if accepts(node, shape))
            self._candidates[shape] = found
        return found

    def _change(self, node: str, ledger: Ledger, requests: Mapping[str, int], sign: int) -> None:
        amounts = ledger[node]
        for name, n in requests.items():
            amounts[name] = amounts.get(name, 0) + sign * n
            self._log.append((node, amounts, name, sign * n))


def _fits(shape: PodShape, free: Amounts) -> bool:
    for name, n in shape.requests:  # noqa: SIM110 - a cycle spends its time here: no generator
        if free.get(name, 0) < n:
            return False
    return True


def by_replica(pods: Iterable[Pod]) -> dict[int, list[Pod]]:
    """Pods that haven't ended, by replica index."""
    found: dict[int, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.replica_index is not None and pod.phase not in ENDED:
            found[pod.replica_index].append(pod)
    return found
