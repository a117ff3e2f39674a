"""What a pod asks of a node, and whether a node may take it at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.engine.snapshot import Node, Pod, ReplicaShape
from controlplane.engine.types import NodeAffinity, PodPhase, Toleration

REPELLING = ("NoSchedule", "NoExecute")
ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)
#: requests that are not accelerators
ORDINARY = ("cpu", "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True)
class PodShape:
    """What decides where a pod can go. Hashable: equal shapes are tried once."""

    requests: tuple[tuple[str, int], ...]
    tolerations: tuple[Toleration, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeAffinity = ()
    accelerators: tuple[tuple[str, int], ...] = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        found = tuple([(name, n) for name, n in self.requests if is_accelerator(name)])
        object.__setattr__(self, "accelerators", found)
        object.__setattr__(self, "_hash", hash((self.requests, self.wishes)))

    def __hash__(self) -> int:
        return self._hash  # a cycle looks shapes up some thousand times

    def __reduce__(self) -> tuple[type[PodShape], tuple[object, ...]]:
        # hashes of text differ from process to process
        return PodShape, (self.requests, *self.wishes)

    @property
    def wishes(self) -> tuple[object, object, object]:
        """What decides which nodes will do, whatever room they have."""
        return (self.tolerations, self.node_selector, self.affinity)


def shape_of(source: Pod | ReplicaShape) -> PodShape:
    """The shape of a pod, or of each pod of a replica."""
    return PodShape(
        requests=tuple(sorted((k, v) for k, v in source.requests.items() if v > 0)),
        tolerations=tuple(sorted(set(source.tolerations))),
        node_selector=tuple(sorted(source.node_selector.items())),
        affinity=source.affinity,
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
    return tolerated(node, shape) and selected(node, shape)


def tolerated(node: Node, shape: PodShape) -> bool:
    """Whether every taint of the node that repels is tolerated."""
    return all(
        any(toleration.tolerates(taint) for toleration in shape.tolerations)
        for taint in node.taints
        if taint.effect in REPELLING
    )


def selected(node: Node, shape: PodShape) -> bool:
    """Whether node selector and required node affinity name the node (`metadata.name` stands for
    the field of that name)."""
    if any(node.labels.get(key) != value for key, value in shape.node_selector):
        return False
    if not shape.affinity:
        return True
    labels = {**node.labels, "metadata.name": node.name}
    return any(all(need.matches(labels) for need in term) for term in shape.affinity)
