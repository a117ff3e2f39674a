"""What keeps pods of a shape off each node, one bit for each obstacle that somebody could remove.

Nodes with the same obstacles are added up, so that "what if this taint were tolerated" is a sum
over a handful of numbers, however many nodes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from controlplane.engine.nodetable import NodeTable
from controlplane.engine.placement import PodShape
from controlplane.engine.shapes import REPELLING
from controlplane.engine.snapshot import Node
from controlplane.engine.types import Requirement, Taint, Toleration

Column = npt.NDArray[np.int64]
Wishes = tuple[object, object, object]
T = TypeVar("T")

#: the node is cordoned
CORDON = 1
#: nothing that an operator or a user does makes the node take the pod: it isn't ready, about to
#: leave, avoided, or in another topology domain
NEVER = 1 << 62
#: taints, and selector keys, that get bits of their own; nodes behind others are left out
MOST_BITS = 24
#: what the node controller itself sets and takes away: tolerating these is no remedy
LIFECYCLE = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True, slots=True)
class Blockers:
    """`bits`: for each node what keeps the pod away, 0 for a node that takes it. `taints` and
    `keys` (of node selector and affinity, with what the pod asks of each): which bit is which."""

    bits: Column
    taints: Mapping[int, Taint]
    keys: Mapping[int, str]


class NodeColumns:
    """Nodes by name, and what their labels, taints and states mean for any shape. Read-only."""

    def __init__(self, table: NodeTable, closed: Iterable[str] = ()) -> None:
        self._table = table
        self.nodes, self.names, self.position = table.nodes, table.names, table.position
        self._state = np.where(table.ready, np.where(table.cordoned, CORDON, 0), NEVER)
        for name in closed:
            if name in self.position:
                self._state[self.position[name]] = NEVER
        # most nodes have no taints: set 0
        self._taints = np.zeros(len(table), dtype=np.int64)
        numbers: dict[tuple[Taint, ...], int] = {(): 0}
        for i, node in table.tainted.items():
            self._taints[i] = numbers.setdefault(_repelling(node), len(numbers))
        self._taint_sets = list(numbers)
        self._labels: dict[str, tuple[Column, list[str | None]]] = {}
        self._found: dict[Wishes, Blockers] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def label(self, key: str) -> tuple[Column, list[str | None]]:
        """For each node the number of its value of a label, and the values (None: it has none).
        `metadata.name` stands for the node's name."""
        found = self._labels.get(key)
        if found is None:
            if key == "metadata.name":
                values: list[str | None] = list(self.names)
            else:
                values = [node.labels.get(key) for node in self.nodes]
            found = self._labels[key] = _coded(values)
        return found

    def allocatable(self, resource: str) -> Column:
        return self._table.column(resource)

    def blockers(self, shape: PodShape) -> Blockers:
        found = self._found.get(shape.wishes)
        if found is None:
            found = self._found[shape.wishes] = self._blockers(shape)
        return found

    def _blockers(self, shape: PodShape) -> Blockers:
        taints = _taint_bits(self._taint_sets, shape.tolerations)
        by_set = [_bits_of(one, shape.tolerations, taints) for one in self._taint_sets]
        bits = self._state | np.array(by_set or [0], dtype=np.int64)[self._taints]
        asked = dict.fromkeys(key for key, _ in shape.node_selector)
        asked.update(dict.fromkeys(need.key for term in shape.affinity for need in term))
        numbers = {key: _bit(MOST_BITS + 1 + i, i) for i, key in enumerate(asked)}
        for key, value in shape.node_selector:
            bits = bits | self._failing(key, _equal_to(value), numbers[key])
        if shape.affinity:
            bits = bits | self._nearest_term(shape.affinity, numbers)
        keys = {bit: _wish(shape, key) for key, bit in numbers.items() if bit != NEVER}
        return Blockers(bits, {bit: taint for taint, bit in taints.items()}, keys)

    def _nearest_term(
        self, affinity: Sequence[Sequence[Requirement]], numbers: Mapping[str, int]
    ) -> Column:
        """Bits of the term that each node misses by the fewest keys (the first of them)."""
        best = np.zeros(len(self), dtype=np.int64)
        fewest = np.full(len(self), np.iinfo(np.int64).max)
        for term in affinity:
            bits = np.zeros(len(self), dtype=np.int64)
            failing: dict[str, Column] = {}
            for need in term:
                here = self._failing(need.key, _matching(need), numbers[need.key])
                failing[need.key] = failing.get(need.key, 0) | here
            for here in failing.values():
                bits = bits | here
            missed = sum((here != 0 for here in failing.values()), np.zeros(len(self), np.int64))
            best = np.where(missed < fewest, bits, best)
            fewest = np.minimum(fewest, missed)
        return best

    def _failing(self, key: str, holds: Callable[[str | None], bool], bit: int) -> Column:
        """`bit` for the nodes whose value of a label isn't what is asked for."""
        codes, values = self.label(key)
        failing = np.array([0 if holds(value) else bit for value in values] or [0], dtype=np.int64)
        return failing[codes]


class Room:
    """Pods of one shape that each node would take, added up over nodes with the same obstacles in
    the same domain."""

    def __init__(self, units: Column, blockers: Blockers, domains: Column, count: int) -> None:
        self.units, self.domains = units, domains
        self.blockers = blockers
        self.bits = np.where(domains < 0, NEVER, blockers.bits)
        some = units > 0
        sets, which = np.unique(self.bits[some], return_inverse=True)
        at = which * count + np.maximum(domains[some], 0)
        sums = np.bincount(at, weights=units[some], minlength=len(sets) * count)
        self._sets: list[int] = sets.tolist()
        self._pods = sums.reshape(len(sets), count).astype(np.int64)

    def pods(self, opens: int = 0) -> int:
        """Pods that find nodes in the roomiest domain if some obstacles go."""
        rows = [i for i, bits in enumerate(self._sets) if not bits & ~opens]
        return int(self._pods[rows].sum(axis=0).max()) if rows else 0

    def domain(self, opens: int) -> int:
        rows = [i for i, bits in enumerate(self._sets) if not bits & ~opens]
        return int(self._pods[rows].sum(axis=0).argmax()) if rows else 0

    def usable(self, opens: int) -> Column:
        """Positions of nodes in the roomiest domain that take the pod if some obstacles go."""
        inside = (self.bits & ~opens) == 0
        at = np.flatnonzero(inside & (self.domains == self.domain(opens)))
        return at.astype(np.int64)


def units_of(shape: PodShape, columns: Mapping[str, Column], nodes: int) -> Column:
    """Pods of a shape that each node takes, given what it has free of each resource."""
    if not shape.requests:
        return np.zeros(nodes, dtype=np.int64)
    fits: Column = np.full(nodes, np.iinfo(np.int64).max)
    for name, amount in shape.requests:
        np.minimum(fits, columns[name] // amount, out=fits)
    np.maximum(fits, 0, out=fits)
    return fits


def _equal_to(wanted: str) -> Callable[[str | None], bool]:
    return lambda value: value == wanted


def _matching(need: Requirement) -> Callable[[str | None], bool]:
    return lambda value: need.matches({} if value is None else {need.key: value})


def _wish(shape: PodShape, key: str) -> str:
    """What a shape asks of a label, as an operator would write it."""
    wishes = [f"{key}={value}" for name, value in shape.node_selector if name == key]
    for term in shape.affinity:
        for need in term:
            if need.key == key:
                values = f" ({', '.join(need.values)})" if need.values else ""
                wishes.append(f"{key} {need.operator}{values}")
    return ", ".join(dict.fromkeys(wishes))


def _repelling(node: Node) -> tuple[Taint, ...]:
    """Taints that keep pods away; the one that cordoning sets goes when the node is uncordoned."""
    return tuple(
        taint
        for taint in node.taints
        if taint.effect in REPELLING and not (node.unschedulable and taint.key == UNSCHEDULABLE)
    )


def _taint_bits(
    sets: Iterable[tuple[Taint, ...]], tolerations: Sequence[Toleration]
) -> dict[Taint, int]:
    """A bit for each taint that isn't tolerated and could be."""
    kept = {
        taint
        for taints in sets
        for taint in taints
        if not _tolerated(taint, tolerations) and not taint.key.startswith(LIFECYCLE)
    }
    return {taint: 2 << i for i, taint in enumerate(sorted(kept)[:MOST_BITS])}


def _bits_of(
    taints: tuple[Taint, ...], tolerations: Sequence[Toleration], numbers: Mapping[Taint, int]
) -> int:
    bits = 0
    for taint in taints:
        if not _tolerated(taint, tolerations):
            bits |= numbers.get(taint, NEVER)
    return bits


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)


def _bit(position: int, index: int) -> int:
    return 1 << position if index < MOST_BITS else NEVER


def _coded(values: Sequence[T]) -> tuple[Column, list[T]]:
    """Each value's number, and the distinct values in the order in which they come."""
    numbers: dict[T, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return np.array(codes, dtype=np.int64), list(numbers)
