"""What a cycle asks of a snapshot, looked up once: nodes as columns, pods by workload, who waits.

`Index.of(snapshot, previous)` brings the previous index up to the new snapshot and does only what
belongs to objects that are new, by identity: observers and simulators keep unchanged objects
between snapshots. What comes of it is the same as from scratch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from controlplane.engine import fingerprint
from controlplane.engine.accounting import Accounting, Books, reservations, takers
from controlplane.engine.nodetable import NodeTable
from controlplane.engine.ordering import waits
from controlplane.engine.placement import Capacity, Ledger, ledgers_of
from controlplane.engine.policy import PolicySet
from controlplane.engine.replicas import Rank, Replicas
from controlplane.engine.shapes import holds, place_of
from controlplane.engine.snapshot import ClusterSnapshot, Node, Pod, Workload
from controlplane.engine.types import VictimChoice, WorkloadKey

T = TypeVar("T")


class Parts:
    """The parts of one collection and the sum of their digests; tells what is new and what has
    gone. Parts are told apart by identity: a changed one is a new one."""

    def __init__(self) -> None:
        self._known: dict[int, object] = {}
        self._digests: dict[int, int] = {}
        self.sum = 0

    def update(self, parts: Iterable[T]) -> tuple[list[T], list[T]]:
        """(new, gone)."""
        found: dict[int, Any] = {id(part): part for part in parts}
        new = [found[i] for i in found.keys() - self._known.keys()]
        gone: list[Any] = [self._known[i] for i in self._known.keys() - found.keys()]
        total = self.sum
        for part in gone:
            total -= self._digests.pop(id(part))
        for part in new:
            digest = self._digests[id(part)] = fingerprint.of_part(part)
            total += digest
        self.sum = total % fingerprint.MODULUS
        self._known = found
        return new, gone


class Entries:
    """The same for a mapping, whose values several keys may share."""

    def __init__(self) -> None:
        self._known: dict[object, object] = {}
        self._digests: dict[object, int] = {}
        self.sum = 0

    def update(self, mapping: Mapping[Any, object]) -> None:
        known, total = self._known, self.sum
        for key in [key for key in known if key not in mapping]:
            total -= self._digests.pop(key)
            del known[key]
        for key, value in mapping.items():
            if key in known and known[key] is value:
                continue
            digest = fingerprint.of_part(value, key)
            total += digest - self._digests.get(key, 0)
            known[key], self._digests[key] = value, digest
        self.sum = total % fingerprint.MODULUS


class Index:
    """`workloads`: managed ones by priority, age and name. `waiting`: pods that no node has taken.
    `leaving`: those with a deletion timestamp. `watched`: nodes that are announced to leave, or
    have hurt jobs."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._parts = {name: Parts() for name in fingerprint.SEQUENCES}
        self._entries = {name: Entries() for name in fingerprint.MAPPINGS}
        self._pods: dict[WorkloadKey, dict[int, Pod]] = {}
        self._replicas: dict[WorkloadKey, tuple[Workload, Replicas]] = {}
        self.workloads: list[Workload] = []
        self._waiting: dict[int, Pod] = {}
        self._leaving: dict[int, Pod] = {}
        self.table = NodeTable(snapshot.nodes)
        self._parts["nodes"].update(snapshot.nodes)
        self._books = Books(snapshot.nodes, snapshot.pods)
        self._now, self._later = ledgers_of(self.table, snapshot.pods)
        for pod in self._parts["pods"].update(snapshot.pods)[0]:
            self._enter(pod)
        self._finish(snapshot)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, previous: Index | None = None) -> Index:
        """The index of a snapshot; `previous` is used up."""
        if previous is None or not previous._advance(snapshot):
            return cls(snapshot)
        return previous

    # -- from one snapshot to the next -------------------------------------------------------

    def _advance(self, snapshot: ClusterSnapshot) -> bool:
        """False if nodes came or went: everything has another place then."""
        new, gone = self._parts["nodes"].update(snapshot.nodes)
        if {node.name for node in new} != {node.name for node in gone}:
            return False
        if new:
            self._replace_nodes(new)
        new_pods, gone_pods = self._parts["pods"].update(snapshot.pods)
        self._books.update(nodes=new, pods=new_pods, gone=gone_pods)
        for pod in gone_pods:
            self._leave(pod)
            self._count(pod, 1)
        for pod in new_pods:
            self._enter(pod)
            self._count(pod, -1)
        self._finish(snapshot)
        return True

    def _finish(self, snapshot: ClusterSnapshot) -> None:
        self._parts["in_flight"].update(snapshot.in_flight)
        new, gone = self._parts["workloads"].update(snapshot.workloads)
        if new or gone:
            managed = (workload for workload in snapshot.workloads if workload.managed)
            self.workloads = sorted(managed, key=_by_priority)
        for name, entries in self._entries.items():
            entries.update(getattr(snapshot, name))
        self.waiting = list(self._waiting.values())
        self.leaving = sorted(self._leaving.values(), key=_order)
        self.watched = [
            node
            for node in self.table.nodes
            if node.departure is not None or node.name in snapshot.node_history
        ]

    def _replace_nodes(self, new: Iterable[Node]) -> None:
        changed = {self.table.position[node.name]: node for node in new}
        before = self.table
        self.table = before.replaced(changed)
        for resource in self.table.allocatable:
            difference = self.table.column(resource) - before.column(resource)
            for ledger in (self._now, self._later):
                ledger[resource] = ledger.get(resource, 0) + difference

    def _enter(self, pod: Pod) -> None:
        if pod.workload is not None:
            self._pods.setdefault(pod.workload, {})[id(pod)] = pod
            self._replicas.pop(pod.workload, None)
        if pod.deleting:
            self._leaving[id(pod)] = pod
        elif waits(pod):
            self._waiting[id(pod)] = pod

    def _leave(self, pod: Pod) -> None:
        if pod.workload is not None:
            self._pods[pod.workload].pop(id(pod), None)
            self._replicas.pop(pod.workload, None)
        self._leaving.pop(id(pod), None)
        self._waiting.pop(id(pod), None)

    def _count(self, pod: Pod, sign: int) -> None:
        """Give the pod's place back to the ledgers (1), or take it from them (-1)."""
        i = self.table.position.get(place_of(pod) or "")
        if i is None or not holds(pod):
            return
        for ledger in (self._now,) if pod.deleting else (self._now, self._later):
            for name, n in pod.requests.items():
                if name not in ledger:
                    ledger[name] = self.table.column(name).copy()
                ledger[name][i] += sign * n

    # -- what is asked of it -----------------------------------------------------------------

    def replicas_of(self, workload: Workload, rank: Rank) -> Replicas:
        """`rank`: which victims go first, where they can be named."""
        known = self._replicas.get(workload.key)
        if known is not None and known[0] is workload:
            return known[1]
        pods = sorted(self._pods.get(workload.key, {}).values(), key=_order)
        if workload.victims is VictimChoice.NAMED:  # depends on the nodes too: not kept
            return Replicas(workload, pods, rank)
        found = Replicas(workload, pods)
        self._replicas[workload.key] = (workload, found)
        return found

    def node_of(self, pod: Pod) -> Node | None:
        i = self.table.position.get(pod.node or "")
        return None if i is None else self.table.nodes[i]

    def domain_of(self, workload: Workload, replicas: Replicas) -> str | None:
        """The topology domain that most of a job's pods are in."""
        level = workload.shape.topology
        counts: dict[str, int] = {}
        for pod in replicas.pods:
            i = self.table.position.get(pod.node or "")
            domain = self.table.nodes[i].labels.get(level) if i is not None else None
            if domain is not None and holds(pod):
                counts[domain] = counts.get(domain, 0) + 1
        return max(sorted(counts), key=lambda name: counts[name], default=None)

    def capacity(self, closed: Iterable[str]) -> Capacity:
        return Capacity(self.table, closed=closed, ledgers=(_copy(self._now), _copy(self._later)))

    def digest(self, snapshot: ClusterSnapshot, policies: PolicySet, now: float) -> str:
        sums = {name: parts.sum for name, parts in self._parts.items()}
        sums.update({name: entries.sum for name, entries in self._entries.items()})
        return fingerprint.combined(snapshot, policies, now, sums)

    def accounting(self, snapshot: ClusterSnapshot, closed: Collection[str]) -> Accounting:
        """Where every accelerator is; see `accounting.account`."""
        reserved = reservations(
            snapshot,
            missing=self._missing,
            closed=closed,
            capacity=lambda: self.capacity(closed),
        )
        wanting = (w for w in snapshot.workloads if w.managed and not w.finished)
        open_to = takers(self._indexed(workload).shape for workload in wanting)
        return self._books.accounting(snapshot.workloads, reserved, open_to, closed)

    def _missing(self, workload: Workload, target: int) -> int:
        replicas = self._indexed(workload)
        return replicas.missing if target == workload.granted else replicas.missing_pods(target)

    def _indexed(self, workload: Workload) -> Replicas:
        return self.replicas_of(workload, lambda pod: 0)


def _copy(ledger: Ledger) -> Ledger:
    return {name: column.copy() for name, column in ledger.items()}


def _by_priority(workload: Workload) -> tuple[int, float, str, str, str]:
    return (-workload.priority, workload.created_at, *workload.key.parts)


def _order(pod: Pod) -> tuple[str, str, str]:
    return (pod.namespace, pod.name, pod.uid)
