"""The one formula of capacity: every accelerator of every node is in exactly one state.

Used by the planner, the API and every chart (DESIGN.md, Accounting).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.engine.placement import (
    Capacity,
    accepts,
    holds,
    is_accelerator,
    place_of,
    shape_of,
)
from controlplane.engine.snapshot import ClusterSnapshot, Node, Pod, Workload
from controlplane.engine.types import PodPhase, WorkloadKey


class CapacityState(StrEnum):
    """FREE can be used; USED is held by a pod; USED_UNHEALTHY too, on a bad node or device;
    TERMINATING by a pod that is leaving; RESERVED is granted and not visible yet, or kept for a
    pod that the scheduler nominated (what is still terminating there counts as that). The rest is
    held by nobody: CORDONED, NOT_READY (also a device that is not offered any more), BOOTING
    (the device plugin isn't up), TAINTED (a taint that no managed workload tolerates)."""

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


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds accelerators: a workload (None: pods without an owner) and its team."""

    team: str
    workload: WorkloadKey | None


@dataclass(frozen=True, slots=True)
class Accounting:
    """`nodes`: node -> resource -> states that add up to `capacity` of the same node. `totals`
    and `pools` are their sums. `holders`: resource -> holder -> accelerators that are used,
    used-unhealthy or terminating. States that count nothing are left out."""

    nodes: Mapping[str, Mapping[str, States]] = field(default_factory=dict)
    capacity: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pools: Mapping[str, Mapping[str, States]] = field(default_factory=dict)
    totals: Mapping[str, States] = field(default_factory=dict)
    holders: Mapping[str, Mapping[Holder, int]] = field(default_factory=dict)


def account(snapshot: ClusterSnapshot) -> Accounting:
    """Where every accelerator of a snapshot is."""
    held = _held(snapshot.pods)
    reserved = reservations(snapshot)
    nodes, capacity = {}, {}
    for node in sorted(snapshot.nodes, key=lambda n: n.name):
        pods = held.get(node.name, ())
        states = {
            resource: _states(snapshot, node, resource, pods, reserved.get(node.name, {}))
            for resource in _resources(node, pods)
        }
        nodes[node.name] = states
        capacity[node.name] = {name: sum(counts.values()) for name, counts in states.items()}
    pool_of = {node.name: node.pool for node in snapshot.nodes}
    return Accounting(
        nodes=nodes,
        capacity=capacity,
        pools={
            pool: _sum(states for name, states in nodes.items() if pool_of[name] == pool)
            for pool in sorted(set(pool_of.values()))
        },
        totals=_sum(nodes.values()),
        holders=_holders(snapshot, set(nodes)),
    )


def reservations(snapshot: ClusterSnapshot) -> dict[str, Counter[str]]:
    """Granted places that no pod shows yet: node -> resource -> accelerators.

    They are where the pods that are still missing would go first. Only what names a policy (or has
    a command under way) is granted anything by us.
    """
    room = Capacity.of(snapshot)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    pods = pods_by_workload(snapshot)
    started = {flight.workload for flight in snapshot.in_flight}
    for workload in sorted(snapshot.workloads, key=lambda w: (-w.priority, w.created_at, w.key)):
        under_way = workload.key in started
        if workload.finished or not workload.managed:
            continue
        if not under_way and (workload.suspended or workload.policy is None):
            continue
        shape = shape_of(workload.shape)
        for _ in range(missing_pods(workload, target_of(snapshot, workload), pods)):
            places = room.take_now(shape)
            if places is None:
                break
            found[places[0]].update(dict(shape.accelerators))
    return found


def target_of(snapshot: ClusterSnapshot, workload: Workload) -> int:
    """Replicas that the workload was granted: by the command in flight, else on the cluster."""
    for flight in snapshot.in_flight:
        if flight.workload == workload.key:
            return flight.to_replicas
    return workload.granted


def missing_pods(
    workload: Workload, target: int, pods: Mapping[WorkloadKey, tuple[Pod, ...]]
) -> int:
    """Pods of the first `target` replicas that aren't on a node (or on their way off it). One that
    has succeeded is never made anew, so it isn't missing."""
    there: Counter[int] = Counter()
    for pod in pods.get(workload.key, ()):
        succeeded = pod.phase is PodPhase.SUCCEEDED
        if pod.replica_index is not None and (succeeded or (holds(pod) and not pod.deleting)):
            there[pod.replica_index] += 1
    size = workload.shape.pods_per_replica
    found = sum(min(n, size) for index, n in there.items() if index < target)
    return max(0, target * size - found)


def pods_by_workload(snapshot: ClusterSnapshot) -> dict[WorkloadKey, tuple[Pod, ...]]:
    """Every workload's pods, in order of their names."""
    found: dict[WorkloadKey, list[Pod]] = defaultdict(list)
    for pod in sorted(snapshot.pods, key=lambda p: (p.namespace, p.name, p.uid)):
        if pod.workload is not None:
            found[pod.workload].append(pod)
    return {key: tuple(pods) for key, pods in found.items()}


# -- one node --------------------------------------------------------------------------------


def _states(
    snapshot: ClusterSnapshot,
    node: Node,
    resource: str,
    pods: Iterable[Pod],
    reserved: Mapping[str, int],
) -> States:
    """States of one resource of one node; they add up to its capacity, or to what is held if
    that is more (a device that vanished under its pod)."""
    found = [(pod, pod.requests.get(resource, 0)) for pod in pods]
    held = [(pod, n) for pod, n in found if pod.node is not None]
    nominated = sum(n for pod, n in found if pod.node is None)
    leaving = sum(n for pod, n in held if pod.deleting)
    used = sum(n for pod, n in held if not pod.deleting)
    there = node.capacity.get(resource, 0)
    offered = node.allocatable.get(resource, 0)
    booting = max(0, node.expects.get(resource, 0) - there)
    bad = used if not node.ready else min(used, max(0, used + leaving - offered))
    empty = max(0, there - used - leaving)
    broken = min(empty, max(0, there - offered - bad))
    granted = min(empty - broken, nominated + reserved.get(resource, 0))
    counts: Counter[CapacityState] = Counter()
    counts[CapacityState.TERMINATING] += leaving
    counts[CapacityState.USED_UNHEALTHY] += bad
    counts[CapacityState.USED] += used - bad
    counts[CapacityState.NOT_READY] += broken
    counts[CapacityState.BOOTING] += booting
    counts[CapacityState.RESERVED] += granted
    counts[_of_empty(snapshot, node, resource)] += empty - broken - granted
    return {state: counts[state] for state in CapacityState if counts[state]}


def _of_empty(snapshot: ClusterSnapshot, node: Node, resource: str) -> CapacityState:
    if not node.ready:
        return CapacityState.NOT_READY
    if node.unschedulable:
        return CapacityState.CORDONED
    if _open_to_somebody(snapshot, node, resource):
        return CapacityState.FREE
    return CapacityState.TAINTED


def _open_to_somebody(snapshot: ClusterSnapshot, node: Node, resource: str) -> bool:
    """No taint keeps all away, or a managed workload that wants this resource tolerates it."""
    repelling = [t for t in node.taints if t.effect in ("NoSchedule", "NoExecute")]
    if not repelling:
        return True
    return any(
        workload.managed
        and workload.shape.requests.get(resource)
        and accepts(node, shape_of(workload.shape))
        for workload in snapshot.workloads
    )


def _resources(node: Node, pods: Iterable[Pod]) -> list[str]:
    """The accelerators that the node has, promises, or has pods holding."""
    named = {*node.capacity, *node.expects, *(r for pod in pods for r in pod.requests)}
    amounts = {
        name: max(
            node.capacity.get(name, 0),
            node.expects.get(name, 0),
            sum(pod.requests.get(name, 0) for pod in pods),
        )
        for name in named
        if is_accelerator(name)
    }
    return sorted(name for name, n in amounts.items() if n)


# -- sums ------------------------------------------------------------------------------------


def _held(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        place = place_of(pod)
        if place is not None and holds(pod):
            found[place].append(pod)
    return found


def _sum(parts: Iterable[Mapping[str, States]]) -> dict[str, States]:
    totals: dict[str, Counter[CapacityState]] = defaultdict(Counter)
    for part in parts:
        for resource, states in part.items():
            totals[resource].update(states)
    return {
        resource: {state: counts[state] for state in CapacityState if counts[state]}
        for resource, counts in sorted(totals.items())
    }


def _holders(snapshot: ClusterSnapshot, nodes: set[str]) -> dict[str, Mapping[Holder, int]]:
    teams = {workload.key: workload.team for workload in snapshot.workloads}
    found: dict[str, Counter[Holder]] = defaultdict(Counter)
    for pod in snapshot.pods:
        if pod.node not in nodes or not holds(pod):
            continue
        team = pod.labels.get("concertina.dev/team") or pod.namespace
        if pod.workload is not None:
            team = teams.get(pod.workload, team)
        for resource, n in pod.requests.items():
            if n and is_accelerator(resource):
                found[resource][Holder(team, pod.workload)] += n
    return {
        resource: dict(sorted(held.items(), key=lambda item: (item[0].team, str(item[0].workload))))
        for resource, held in sorted(found.items())
    }
