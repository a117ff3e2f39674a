"""The one formula of capacity: every accelerator of every node is in exactly one state.

Used by the planner, the API and every chart (DESIGN.md, Accounting). `account` reckons a snapshot
from scratch; `Books` can be kept from one snapshot to the next and do only what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from controlplane.engine.books import Accounting, Books, Holder
from controlplane.engine.capacity_states import CapacityState, States, node_states, takers
from controlplane.engine.placement import Capacity
from controlplane.engine.shapes import holds, shape_of
from controlplane.engine.snapshot import ClusterSnapshot, Pod, Workload
from controlplane.engine.types import PodPhase, WorkloadKey

__all__ = [
    "Accounting",
    "Books",
    "CapacityState",
    "Difference",
    "Holder",
    "States",
    "account",
    "differences",
    "missing_pods",
    "node_states",
    "pods_by_workload",
    "reservations",
    "takers",
    "target_of",
]

HELD = (CapacityState.USED, CapacityState.USED_UNHEALTHY, CapacityState.TERMINATING)


@dataclass(frozen=True, slots=True)
class Difference:
    """Accelerators that are held, by the states of the nodes and by who holds them."""

    resource: str
    by_nodes: int
    by_holders: int


def account(
    snapshot: ClusterSnapshot,
    *,
    closed: Collection[str] = (),
    pods_by_workload: Mapping[WorkloadKey, Iterable[Pod]] | None = None,
) -> Accounting:
    """Where every accelerator of a snapshot is. `closed`: nodes that we give nothing new
    (`nodes_health.avoided`): what is empty there counts as cordoned. Without it, an announced
    departure changes nothing: Kubernetes still takes pods there."""
    pods = _grouped(snapshot.pods) if pods_by_workload is None else pods_by_workload
    reserved = reservations(snapshot, pods=pods, closed=closed)
    open_to = takers(shape_of(w.shape) for w in _managed(snapshot) if w.shape.tolerations)
    return Books(snapshot.nodes, snapshot.pods).accounting(
        snapshot.workloads, reserved, open_to, closed
    )


def differences(accounting: Accounting) -> tuple[Difference, ...]:
    """Resources of which the nodes' states and the holders tell different sums: both come from the
    same pods by different ways, so that a difference is an error in the books (KAI 1048)."""
    found = []
    for resource in sorted({*accounting.totals, *accounting.holders}):
        states = accounting.totals.get(resource, {})
        by_nodes = sum(states.get(state, 0) for state in HELD)
        by_holders = sum(accounting.holders.get(resource, {}).values())
        if by_nodes != by_holders:
            found.append(Difference(resource, by_nodes, by_holders))
    return tuple(found)


# -- what was granted --------------------------------------------------------------------------


def reservations(
    snapshot: ClusterSnapshot,
    *,
    pods: Mapping[WorkloadKey, Iterable[Pod]] | None = None,
    missing: Callable[[Workload, int], int] | None = None,
    closed: Collection[str] = (),
    capacity: Callable[[], Capacity] | None = None,
) -> dict[str, dict[str, int]]:
    """Granted places that no pod shows yet: node -> resource -> accelerators.

    They are where the pods that are still missing would go first. Only what names a policy (or has
    a command under way) is granted anything by us. What is at hand may be given: every workload's
    pods, or how many of them are `missing` at a size; the free capacity, which is used up.
    """
    flights = {flight.workload: flight.to_replicas for flight in snapshot.in_flight}
    if missing is None:
        grouped = _grouped(snapshot.pods) if pods is None else pods

        def missing(workload: Workload, target: int) -> int:
            return missing_pods(workload, target, grouped)

    wanting = []
    for workload in _managed(snapshot):
        under_way = workload.key in flights
        if not under_way and (workload.suspended or workload.policy is None):
            continue
        n = missing(workload, flights.get(workload.key, workload.granted))
        if n:
            wanting.append((workload, n))
    found: dict[str, dict[str, int]] = {}
    if not wanting:
        return found
    room = capacity() if capacity is not None else Capacity.of(snapshot, closed)
    for workload, n in sorted(wanting, key=lambda w: (-w[0].priority, w[0].created_at, w[0].key)):
        shape = shape_of(workload.shape)
        for _ in range(n):
            places = room.take_now(shape)
            if places is None:
                break
            kept = found.setdefault(places[0], {})
            for name, amount in shape.accelerators:
                kept[name] = kept.get(name, 0) + amount
    return found


def target_of(snapshot: ClusterSnapshot, workload: Workload) -> int:
    """Replicas that the workload was granted: by the command in flight, else on the cluster."""
    for flight in snapshot.in_flight:
        if flight.workload == workload.key:
            return flight.to_replicas
    return workload.granted


def missing_pods(workload: Workload, target: int, pods: Mapping[WorkloadKey, Iterable[Pod]]) -> int:
    """Pods of the first `target` replicas that aren't on a node (or on their way off it). One that
    has succeeded is never made anew, so it isn't missing. Pods without an index belong to some
    replica, as long as there is one to fill."""
    there: dict[int | None, int] = {}
    for pod in pods.get(workload.key, ()):
        if pod.phase is PodPhase.SUCCEEDED or (holds(pod) and not pod.deleting):
            there[pod.replica_index] = there.get(pod.replica_index, 0) + 1
    size = workload.shape.pods_per_replica
    found = there.pop(None, 0)
    found += sum(min(n, size) for i, n in there.items() if i is not None and i < target)
    return max(0, target * size - found)


def pods_by_workload(snapshot: ClusterSnapshot) -> dict[WorkloadKey, tuple[Pod, ...]]:
    """Every workload's pods, in order of their names."""
    ordered = sorted(snapshot.pods, key=lambda p: (p.namespace, p.name, p.uid))
    return {key: tuple(pods) for key, pods in _grouped(ordered).items()}


def _grouped(pods: Iterable[Pod]) -> dict[WorkloadKey, list[Pod]]:
    found: dict[WorkloadKey, list[Pod]] = {}
    seen: dict[int, list[Pod]] = {}  # by identity of the key: hashing it for every pod is slow
    for pod in pods:
        key = pod.workload
        if key is None:
            continue
        group = seen.get(id(key))
        if group is None:
            group = seen[id(key)] = found.setdefault(key, [])
        group.append(pod)
    return found


def _managed(snapshot: ClusterSnapshot) -> list[Workload]:
    return [w for w in snapshot.workloads if w.managed and not w.finished]
