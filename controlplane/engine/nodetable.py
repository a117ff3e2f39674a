"""The nodes of a snapshot as columns, so that a question to all of them is one vector operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from controlplane.engine.shapes import PodShape, accepts
from controlplane.engine.snapshot import Node

Column = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class NodeTable:
    """Nodes by name; `allocatable`: resource -> column. Read-only: `replaced` gives a new one."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = sorted(nodes, key=lambda node: node.name)
        self.names = [node.name for node in self.nodes]
        self.position = {name: i for i, name in enumerate(self.names)}
        self.ready: Mask = np.array([node.ready for node in self.nodes], dtype=bool)
        self.cordoned: Mask = np.array([node.unschedulable for node in self.nodes], dtype=bool)
        self.usable: Mask = self.ready & ~self.cordoned
        #: positions of the nodes that have taints
        self.tainted = {i: node for i, node in enumerate(self.nodes) if node.taints}
        self.allocatable: dict[str, Column] = {}
        for resource in sorted({name for node in self.nodes for name in node.allocatable}):
            self.allocatable[resource] = np.array(
                [node.allocatable.get(resource, 0) for node in self.nodes], dtype=np.int64
            )
        self._open: dict[object, tuple[PodShape, Mask]] = {}
        self._domains: dict[str, tuple[Column, tuple[str, ...]]] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def column(self, resource: str) -> Column:
        """What each node has of a resource; zeros for one that no node has."""
        found = self.allocatable.get(resource)
        return found if found is not None else np.zeros(len(self.nodes), dtype=np.int64)

    def open_to(self, shape: PodShape) -> Mask:
        """Nodes that may take new pods of a shape, whatever room they have."""
        found = self._open.get(shape.wishes)
        if found is None:
            mask = np.fromiter((accepts(node, shape) for node in self.nodes), bool, len(self.nodes))
            found = self._open[shape.wishes] = (shape, mask)
        return found[1]

    def domains(self, level: str) -> tuple[Column, tuple[str, ...]]:
        """For each node the number of its topology domain (-1: it carries no such label), and the
        domains' names in order."""
        found = self._domains.get(level)
        if found is None:
            names = tuple(sorted({n.labels[level] for n in self.nodes if level in n.labels}))
            numbers = {name: i for i, name in enumerate(names)}
            column = np.array(
                [numbers.get(node.labels.get(level, ""), -1) for node in self.nodes],
                dtype=np.int64,
            )
            found = self._domains[level] = (column, names)
        return found

    def replaced(self, changed: Mapping[int, Node]) -> NodeTable:
        """The table with some rows changed; the nodes' names stay."""
        table = NodeTable.__new__(NodeTable)
        table.nodes = list(self.nodes)
        table.names, table.position = self.names, self.position
        table.ready, table.cordoned = self.ready.copy(), self.cordoned.copy()
        table.tainted = {i: node for i, node in self.tainted.items() if i not in changed}
        for i, node in changed.items():
            table.nodes[i] = node
            table.ready[i], table.cordoned[i] = node.ready, node.unschedulable
            if node.taints:
                table.tainted[i] = node
        table.usable = table.ready & ~table.cordoned
        resources = {name for node in changed.values() for name in node.allocatable}
        table.allocatable = {
            resource: self.column(resource).copy()
            for resource in sorted({*self.allocatable, *resources})
        }
        for resource, column in table.allocatable.items():
            for i, node in changed.items():
                column[i] = node.allocatable.get(resource, 0)
        table._open = {}
        for wishes, (shape, mask) in self._open.items():
            mask = mask.copy()
            for i, node in changed.items():
                mask[i] = accepts(node, shape)
            table._open[wishes] = (shape, mask)
        same_labels = all(self.nodes[i].labels == node.labels for i, node in changed.items())
        table._domains = self._domains if same_labels else {}
        return table
