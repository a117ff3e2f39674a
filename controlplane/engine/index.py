"""What a cycle asks of a snapshot, looked up once: nodes as columns, pods by workload, who waits.

`Index.of(snapshot, previous)` takes over from the previous index whatever belongs to objects that
are still the same, by identity: observers and simulators keep unchanged objects between snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine.accounting import Accounting, account
from controlplane.engine.nodetable import NodeTable
from controlplane.engine.ordering import waits
from controlplane.engine.placement import Capacity, ledgers_of
from controlplane.engine.policy import PolicySet
from controlplane.engine.replicas import Replicas
from controlplane.engine.serialize import digest
from controlplane.engine.snapshot import ClusterSnapshot, Node, Pod, Workload
from controlplane.engine.types import WorkloadKey


class Index:
    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.table = NodeTable(snapshot.nodes)
        self._ledgers = ledgers_of(self.table, snapshot.pods)
        self._pods: dict[WorkloadKey, list[Pod]] = {}
        for pod in sorted(snapshot.pods, key=lambda p: (p.namespace, p.name, p.uid)):
            if pod.workload is not None:
                self._pods.setdefault(pod.workload, []).append(pod)
        self.waiting = [pod for pod in snapshot.pods if waits(pod)]
        self.leaving = [pod for pod in snapshot.pods if pod.deleting]
        self.watched: list[Node] = [
            node
            for node in self.table.nodes
            if node.departure is not None or node.name in snapshot.node_history
        ]

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, previous: Index | None = None) -> Index:
        return cls(snapshot)

    def replicas_of(self, workload: Workload) -> Replicas:
        return Replicas(workload, self._pods.get(workload.key, ()))

    def domain_of(self, workload: Workload, replicas: Replicas) -> str | None:
        """The topology domain that most of a job's pods are in."""
        level, counts = workload.shape.topology, dict[str, int]()
        for pod in replicas.pods:
            i = self.table.position.get(pod.node or "")
            domain = self.table.nodes[i].labels.get(level) if i is not None else None
            if domain is not None:
                counts[domain] = counts.get(domain, 0) + 1
        return max(sorted(counts), key=lambda name: counts[name], default=None)

    def capacity(self, closed: Iterable[str]) -> Capacity:
        now, later = self._ledgers
        return Capacity(
            self.table,
            closed=closed,
            ledgers=(
                {name: column.copy() for name, column in now.items()},
                {name: column.copy() for name, column in later.items()},
            ),
        )

    def digest(self, snapshot: ClusterSnapshot, policies: PolicySet, now: float) -> str:
        return digest(snapshot, policies, now)

    def accounting(self, snapshot: ClusterSnapshot) -> Accounting:
        return account(snapshot)
