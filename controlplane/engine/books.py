"""Accounting that is kept from one snapshot to the next: only what changed is reckoned anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.engine.capacity_states import CapacityState, States, Takers, node_states
from controlplane.engine.shapes import ORDINARY, holds, is_accelerator, place_of
from controlplane.engine.snapshot import Node, Pod, Workload
from controlplane.engine.types import WorkloadKey

#: node -> resource -> accelerators
Reserved = Mapping[str, Mapping[str, int]]
#: a workload, and the team that its pod names (of use where the workload isn't known)
_Owner = tuple[WorkloadKey | None, str]

_NOTHING: Mapping[str, int] = {}


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


class Books:
    """Which pods are where, and what that makes of each node. What they tell is the same as from
    scratch, whatever changes led there. Objects are told apart by identity."""

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod]) -> None:
        self._nodes = {node.name: node for node in sorted(nodes, key=lambda n: n.name)}
        self._pods: dict[str, dict[int, Pod]] = {}
        self._states: dict[str, Mapping[str, States]] = {}
        self._capacity: dict[str, Mapping[str, int]] = {}
        self._pool_of: dict[str, str] = {}
        #: pool -> states of a node (by identity) -> how many nodes of the pool are like that
        self._alike: dict[str, dict[int, tuple[Mapping[str, States], int]]] = {}
        self._dirty = set(self._nodes)
        self._reserved: Reserved = {}
        self._open_to: Takers = ()
        self._closed: frozenset[str] = frozenset()
        self._held = _Held()
        for pod in pods:
            self._enter(pod)

    def update(
        self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = (), gone: Iterable[Pod] = ()
    ) -> None:
        """Nodes that replace those of the same names; pods that are new, and pods that are gone or
        replaced (the very objects that were given before)."""
        for node in nodes:
            self._nodes[node.name] = node
            self._dirty.add(node.name)
        for pod in gone:
            place = place_of(pod)
            if place is not None and self._pods.get(place, {}).pop(id(pod), None) is not None:
                self._dirty.add(place)
                self._held.add(pod, -1)
        for pod in pods:
            self._dirty.add(self._enter(pod))
        self._dirty &= self._nodes.keys()

    def accounting(
        self,
        workloads: Iterable[Workload],
        reserved: Reserved,
        open_to: Takers,
        closed: Collection[str] = (),
    ) -> Accounting:
        """See `accounting.account`; `reserved` and `open_to` as `accounting.reservations` and
        `takers` give them."""
        self._conditions(reserved, open_to, frozenset(closed))
        known: dict[int, Mapping[str, int]] = {}
        for name in sorted(self._dirty) if self._states else self._nodes:
            self._reckon(name, known)
        self._dirty = set()
        pools = {pool: _sum(alike.values()) for pool, alike in sorted(self._alike.items()) if alike}
        return Accounting(
            nodes=dict(self._states),
            capacity=dict(self._capacity),
            pools=pools,
            totals=_sum((states, 1) for states in pools.values()),
            holders=self._held.holders(tuple(workloads)),
        )

    def _enter(self, pod: Pod) -> str:
        """Note a pod; "" if it holds no place on one of the nodes."""
        place = place_of(pod)
        if place is None or place not in self._nodes or not holds(pod):
            return ""
        there = self._pods.get(place)
        if there is None:
            there = self._pods[place] = {}
        there[id(pod)] = pod
        self._held.add(pod, 1)
        return place

    def _conditions(self, reserved: Reserved, open_to: Takers, closed: frozenset[str]) -> None:
        """Nodes for which anything but their pods has changed are reckoned anew."""
        before = self._reserved
        for name in {*before, *reserved}:
            if before.get(name) != reserved.get(name):
                self._dirty.add(name)
        self._dirty |= self._closed ^ closed
        if open_to != self._open_to:
            self._dirty |= {name for name, node in self._nodes.items() if node.taints}
        self._dirty &= self._nodes.keys()
        self._reserved, self._open_to, self._closed = reserved, open_to, closed

    def _reckon(self, name: str, known: dict[int, Mapping[str, int]]) -> None:
        """One node anew. `known`: totals of states, which nodes that are alike share."""
        node = self._nodes[name]
        pods = self._pods.get(name)
        states = node_states(
            node,
            pods.values() if pods else (),
            self._reserved.get(name, _NOTHING),
            self._open_to,
            closed=name in self._closed,
        )
        before = self._states.get(name)
        if before is not None:
            self._tally(self._pool_of[name], before, -1)
        self._tally(node.pool, states, 1)
        self._states[name], self._pool_of[name] = states, node.pool
        total = known.get(id(states))
        if total is None:
            total = {resource: sum(counts.values()) for resource, counts in states.items()}
            known[id(states)] = total
        self._capacity[name] = total

    def _tally(self, pool: str, states: Mapping[str, States], sign: int) -> None:
        alike = self._alike.get(pool)
        if alike is None:
            alike = self._alike[pool] = {}
        found = alike.get(id(states))
        n = sign if found is None else found[1] + sign
        if n:
            alike[id(states)] = (states, n)
        else:
            del alike[id(states)]


class _Held:
    """Accelerators by their holders."""

    def __init__(self) -> None:
        self._amounts: dict[_Owner, dict[str, int]] = {}
        self._moved: dict[_Owner, dict[str, int]] = {}
        self._workloads: tuple[Workload, ...] | None = None
        self._teams: Mapping[WorkloadKey, str] = {}
        self._holders: dict[str, dict[Holder, int]] = {}
        #: a workload's key (by identity) and a team -> the key itself, and where to count: hashing
        #: a key for every pod takes longer than all the rest
        self._seen: dict[tuple[int, str], tuple[WorkloadKey | None, list[dict[str, int]]]] = {}

    def add(self, pod: Pod, sign: int) -> None:
        """Count what a pod holds; one that is only nominated holds nothing yet."""
        if pod.node is None:
            return
        team = pod.labels.get("concertina.dev/team") or pod.namespace
        seen = self._seen.get((id(pod.workload), team))
        if seen is None:
            owner = (pod.workload, team)
            parts = [self._amounts.setdefault(owner, {})]
            if self._holders:
                parts.append(self._moved.setdefault(owner, {}))
            seen = self._seen[(id(pod.workload), team)] = (pod.workload, parts)
        for part in seen[1]:
            for name, n in pod.requests.items():
                if name not in ORDINARY:
                    part[name] = part.get(name, 0) + sign * n

    def holders(self, workloads: tuple[Workload, ...]) -> Mapping[str, Mapping[Holder, int]]:
        """resource -> holder -> accelerators, by team and name of the workload."""
        if workloads != self._workloads:
            teams = {workload.key: workload.team for workload in workloads}
            if teams != self._teams or self._workloads is None:
                self._teams, self._holders = teams, {}
            self._workloads = workloads
        if not self._holders or not self._patch():
            self._rebuild()
        self._moved, self._seen = {}, {}
        return self._holders

    def _patch(self) -> bool:
        """Carry over what has moved; False where somebody has begun or ceased to hold."""
        found = {resource: dict(held) for resource, held in self._holders.items()}
        for owner, moved in self._moved.items():
            holder = self._holder(owner)
            for resource, n in moved.items():
                if not n or not is_accelerator(resource):
                    continue
                held = found.get(resource, {})
                if holder not in held or held[holder] + n == 0:
                    return False
                held[holder] += n
        self._holders = found
        return True

    def _rebuild(self) -> None:
        found: dict[str, dict[Holder, int]] = {}
        for owner, amounts in self._amounts.items():
            holder = self._holder(owner)
            for resource, n in amounts.items():
                if n and is_accelerator(resource):
                    held = found.setdefault(resource, {})
                    held[holder] = held.get(holder, 0) + n
        self._amounts = {owner: a for owner, a in self._amounts.items() if any(a.values())}
        self._holders = {
            resource: dict(sorted(held.items(), key=lambda at: (at[0].team, str(at[0].workload))))
            for resource, held in sorted(found.items())
        }

    def _holder(self, owner: _Owner) -> Holder:
        workload, team = owner
        return Holder(team if workload is None else self._teams.get(workload, team), workload)


def _sum(parts: Iterable[tuple[Mapping[str, States], int]]) -> dict[str, States]:
    """The sum of parts, each of them so many times."""
    totals: dict[str, dict[CapacityState, int]] = {}
    for part, times in parts:
        for resource, states in part.items():
            counts = totals.setdefault(resource, {})
            for state, n in states.items():
                counts[state] = counts.get(state, 0) + n * times
    return {
        resource: {state: counts[state] for state in CapacityState if counts.get(state)}
        for resource, counts in sorted(totals.items())
    }
