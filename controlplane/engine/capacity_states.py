"""What every accelerator of a node is doing: one of nine states (DESIGN.md, Accounting)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache

from controlplane.engine.shapes import (
    ORDINARY,
    REPELLING,
    PodShape,
    is_accelerator,
    selected,
    tolerated,
)
from controlplane.engine.snapshot import Node, Pod


class CapacityState(StrEnum):
    """FREE can be used; USED is held by a pod; USED_UNHEALTHY too, on a bad node or device;
    TERMINATING by a pod that is leaving; RESERVED is granted and not visible yet, or kept for a
    pod that the scheduler nominated (what is still terminating there counts as that). The rest is
    held by nobody: CORDONED (also on a node that we give nothing new, because it is about to leave
    or has hurt jobs), NOT_READY (also a device that is not offered any more), BOOTING (the node is
    ready, its device plugin isn't up), TAINTED (a taint that no managed workload tolerates)."""

    FREE = "free"
    USED = "used"
    USED_UNHEALTHY = "used_unhealthy"
    TERMINATING = "terminating"
    RESERVED = "reserved"
    CORDONED = "cordoned"
    NOT_READY = "not_ready"
    BOOTING = "booting"
    TAINTED = "tainted"


States = Mapping[CapacityState, int]

#: the shapes of managed workloads that tolerate anything at all: whom a tainted node is open to
Takers = tuple[PodShape, ...]

#: resource, there, offered, expected, used, leaving, kept, ready, what its empty devices are
_Count = tuple[str, int, int, int, int, int, int, bool, CapacityState]


def takers(shapes: Iterable[PodShape]) -> Takers:
    """Whom a tainted node may be open to, of the shapes of all managed workloads; made once a
    cycle, for `node_states`. Equal for equal shapes, in whatever order they come."""
    return tuple(sorted({shape for shape in shapes if shape.tolerations}, key=repr))


def node_states(
    node: Node,
    pods: Iterable[Pod],
    reserved: Mapping[str, int],
    open_to: Takers,
    *,
    closed: bool = False,
) -> Mapping[str, States]:
    """resource -> states of the accelerators of one node; depends on its arguments alone.

    `pods`: those that hold a place there (`shapes.holds`), bound or nominated. `reserved`:
    accelerators granted here and not visible yet. `closed`: we give it nothing new. The states of a
    resource add up to the largest of what the node has, what it is expected to have and what is
    held of it (a device can vanish under its pod). Resources that count nothing are left out.
    """
    used: dict[str, int] = {}
    leaving: dict[str, int] = {}
    kept = dict(reserved) if reserved else {}
    for pod in pods:
        part = kept if pod.node is None else leaving if pod.deleting else used
        for name, n in pod.requests.items():
            if name not in ORDINARY:
                part[name] = part.get(name, 0) + n
    capacity, offered, expects, ready = node.capacity, node.allocatable, node.expects, node.ready
    found = [name for name in capacity if name not in ORDINARY]
    for more in (expects, used, leaving):
        if more:
            found.extend(name for name in more if name not in found)
    if not ready or node.unschedulable:
        kept = {}  # where nothing can come, nothing is kept
    counts: list[_Count] = []
    for name in sorted(found) if len(found) > 1 else found:
        if is_accelerator(name):
            counts.append(
                (name, capacity.get(name, 0), offered.get(name, 0), expects.get(name, 0),
                 used.get(name, 0), leaving.get(name, 0), kept.get(name, 0), ready,
                 _of_empty(node, name, open_to, closed))
            )  # fmt: skip
    return _states(tuple(counts))


def _of_empty(node: Node, resource: str, open_to: Takers, closed: bool) -> CapacityState:
    if not node.ready:
        return CapacityState.NOT_READY
    if node.unschedulable or closed:
        return CapacityState.CORDONED
    if not node.taints or _open_to_somebody(node, resource, open_to):
        return CapacityState.FREE
    return CapacityState.TAINTED


def _open_to_somebody(node: Node, resource: str, open_to: Takers) -> bool:
    """No taint keeps all away, or a managed workload that wants this resource tolerates it."""
    if not any(taint.effect in REPELLING for taint in node.taints):
        return True
    return any(
        any(name == resource for name, _ in shape.requests)
        and tolerated(node, shape)
        and selected(node, shape)
        for shape in open_to
    )


@lru_cache(maxsize=16_384)
def _states(counts: tuple[_Count, ...]) -> Mapping[str, States]:
    """Nodes that are alike share one result: a cluster has few different ones."""
    found = {count[0]: _partition(*count[1:]) for count in counts}
    return {resource: states for resource, states in found.items() if states}


def _partition(
    there: int,
    offered: int,
    expected: int,
    used: int,
    leaving: int,
    kept: int,
    ready: bool,
    empty_are: CapacityState,
) -> States:
    """Each of `max(there, expected, used + leaving)` devices in one state. Of devices that aren't
    offered any more it isn't told which they are: as many as must be are held by pods (bad), the
    others are held by nobody (broken)."""
    held = used + leaving
    bad = used if not ready else min(used, max(0, held - offered))
    empty = max(0, there - held)
    broken = min(empty, max(0, there - offered - bad))
    coming = max(0, expected - max(there, held))
    reserved = min(empty - broken, kept)
    counts = dict.fromkeys(CapacityState, 0)
    counts[CapacityState.USED] = used - bad
    counts[CapacityState.USED_UNHEALTHY] = bad
    counts[CapacityState.TERMINATING] = leaving
    counts[CapacityState.RESERVED] = reserved
    counts[CapacityState.NOT_READY] += broken
    counts[CapacityState.BOOTING if ready else CapacityState.NOT_READY] += coming
    counts[empty_are] += empty - broken - reserved
    return {state: n for state, n in counts.items() if n}
