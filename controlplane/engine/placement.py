"""What fits where. Capacity is a pod on a node, never a sum of accelerators.

Two ledgers: what is free **now**, and what is free **later**, when everything that is leaving has
left. A pod that waits for a release takes from the second only; whatever wants to start at once
needs both, so nothing is started on a place that somebody is already waiting for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from controlplane.engine.nodetable import Column, Mask, NodeTable
from controlplane.engine.shapes import (
    ENDED,
    PodShape,
    accepts,
    holds,
    is_accelerator,
    place_of,
    shape_of,
)
from controlplane.engine.snapshot import ClusterSnapshot, Node, Pod
from controlplane.engine.topology import Within, nodes_within

__all__ = [
    "ENDED",
    "Capacity",
    "PodShape",
    "accepts",
    "by_replica",
    "holds",
    "is_accelerator",
    "place_of",
    "shape_of",
]

Ledger = dict[str, Column]

#: with more changed nodes than this, a view is reckoned anew as a whole
MANY = 256


class _View:
    """How many pods of one shape each node still takes, brought up to date when it is asked."""

    def __init__(self, shape: PodShape, ledgers: Sequence[Ledger], open_: Mask) -> None:
        self.open = open_
        self.columns = [(ledger[name], n) for ledger in ledgers for name, n in shape.requests]
        self.fits = self._all()
        self.total = int(self.fits.sum())

    def refresh(self, changed: Sequence[int]) -> None:
        if len(changed) > MANY:
            self.fits = self._all()
            self.total = int(self.fits.sum())
            return
        for i in set(changed):
            if self.open[i]:
                fits = max(0, min([int(column[i]) // n for column, n in self.columns], default=0))
                self.total += fits - int(self.fits[i])
                self.fits[i] = fits

    def _all(self) -> Column:
        if not self.columns:
            return np.zeros(len(self.open), dtype=np.int64)
        fits = self.columns[0][0] // self.columns[0][1]
        for column, n in self.columns[1:]:
            np.minimum(fits, column // n, out=fits)
        fits[~self.open] = 0
        return np.maximum(fits, 0)


class Capacity:
    """The two ledgers of one cycle, with marks to go back to."""

    def __init__(
        self,
        nodes: Iterable[Node] | NodeTable,
        pods: Iterable[Pod] = (),
        *,
        closed: Iterable[str] = (),
        ledgers: tuple[Ledger, Ledger] | None = None,
    ) -> None:
        """`closed`: nodes that get nothing new, though Kubernetes would take it."""
        self.table = nodes if isinstance(nodes, NodeTable) else NodeTable(nodes)
        self._now, self._later = ledgers or ledgers_of(self.table, pods)
        self._usable = self.table.usable.copy()
        for name in closed:
            if name in self.table.position:
                self._usable[self.table.position[name]] = False
        self._log: list[tuple[int, Column, int]] = []
        #: positions of nodes in the order in which they changed; a view knows how far it has read
        self._changes: list[int] = []
        self._views: dict[tuple[PodShape, bool], tuple[_View, int]] = {}

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, closed: Iterable[str] = ()) -> Capacity:
        """Free capacity of a snapshot; pods with a deletion timestamp are leaving."""
        return cls(snapshot.nodes, snapshot.pods, closed=closed)

    # -- taking and giving -------------------------------------------------------------------

    def take_now(
        self, shape: PodShape, pods: int = 1, within: Within | None = None
    ) -> tuple[str, ...] | None:
        """Places for all the pods that are free now and later too; None, and nothing taken, if
        they don't all fit (in one domain, if `within` requires that)."""
        return self._take(shape, pods, within, later=False)

    def take_later(
        self, shape: PodShape, pods: int = 1, within: Within | None = None
    ) -> tuple[str, ...] | None:
        """Places that will be free once what leaves has left."""
        return self._take(shape, pods, within, later=True)

    def take_at(self, shape: PodShape, where: Mask) -> str | None:
        """A place for one pod that will be free on one of some nodes."""
        fits = np.where(where, self._view(shape, later=True).fits, 0)
        if not fits.any():
            return None
        ((i, _),) = self._best(shape, fits, 1, self._later)
        for name, amount in shape.requests:
            self._change(i, self._later[name], -amount)
        return self.table.names[i]

    def give_back(self, node: str, amounts: Mapping[str, int]) -> None:
        """What was taken on a node only for later is free again."""
        i = self.table.position[node]
        for name, n in amounts.items():
            self._change(i, self._column(self._later, name), n)

    def release(self, pod: Pod) -> None:
        """The pod will leave: its place is free later."""
        i = self.table.position.get(place_of(pod) or "")
        if i is not None and holds(pod) and not pod.deleting:
            for name, n in pod.requests.items():
                self._change(i, self._column(self._later, name), n)

    def fitting(self, shape: PodShape, most: int, within: Within | None = None) -> int:
        """How many pods of a shape fit now, counted up to `most`; nothing is taken."""
        view = self._view(shape, later=False)
        if within is None or not within.required:
            return min(most, view.total)
        fits = nodes_within(self.table, view.fits, most, within)
        return 0 if fits is None else min(most, int(fits.sum()))

    # -- asking ------------------------------------------------------------------------------

    def open_to(self, shape: PodShape) -> Mask:
        """Nodes that may get new pods of a shape, whatever room they have."""
        return self.table.open_to(shape) & self._usable

    def fits(self, shape: PodShape, *, later: bool) -> Column:
        """Pods of a shape that each node still takes (to be read, not written)."""
        return self._view(shape, later=later).fits

    def when_empty(self, shape: PodShape) -> Column:
        """Pods of a shape that each node would take if it held nothing."""
        fits = np.full(len(self.table), np.iinfo(np.int64).max)
        for name, n in shape.requests:
            np.minimum(fits, self.table.column(name) // n, out=fits)
        return np.where(self.open_to(shape), fits, 0) if shape.requests else fits * 0

    def later(self, resource: str) -> Column:
        """What each node will have free of a resource (to be read, not written)."""
        return self._column(self._later, resource)

    def free(self, resource: str) -> int:
        """Accelerators that are free now and later on nodes that take new pods at all."""
        both = np.minimum(self._column(self._now, resource), self._column(self._later, resource))
        return int(np.maximum(both, 0)[self._usable].sum())

    def free_later(self, resource: str) -> int:
        """Accelerators that will be free on nodes that take new pods at all."""
        later = self._column(self._later, resource)
        return int(np.maximum(later, 0)[self._usable].sum())

    # -- marks -------------------------------------------------------------------------------

    def mark(self) -> int:
        return len(self._log)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark."""
        while len(self._log) > mark:
            i, column, delta = self._log.pop()
            column[i] -= delta
            self._changes.append(i)

    # -- inside ------------------------------------------------------------------------------

    def _take(
        self, shape: PodShape, pods: int, within: Within | None, *, later: bool
    ) -> tuple[str, ...] | None:
        view = self._view(shape, later=later)
        if view.total < pods or pods == 0:
            return None if pods else ()
        fits = view.fits
        if within is not None:
            chosen = nodes_within(self.table, fits, pods, within)
            if chosen is None:
                return None
            fits = chosen
        ledgers = (self._later,) if later else (self._now, self._later)
        places: list[str] = []
        for i, n in self._best(shape, fits, pods, ledgers[0]):
            for ledger in ledgers:
                for name, amount in shape.requests:
                    self._change(i, ledger[name], -amount * n)
            places.extend([self.table.names[i]] * n)
        return tuple(places)

    def _best(
        self, shape: PodShape, fits: Column, pods: int, ledger: Ledger
    ) -> list[tuple[int, int]]:
        """Best fit: the node that keeps the fewest accelerators, so that whole nodes stay whole;
        by name among equals. A node that was begun is filled first: it keeps fewer than before."""
        able = np.flatnonzero(fits)
        left = np.zeros(len(able), dtype=np.int64)
        for name, _ in shape.accelerators:
            left += ledger[name][able]
        if pods == 1:
            return [(int(able[np.argmin(left)]), 1)]
        found = []
        for at in np.argsort(left, kind="stable"):
            i = int(able[at])
            n = min(pods, int(fits[i]))
            found.append((i, n))
            pods -= n
            if not pods:
                break
        return found

    def _view(self, shape: PodShape, *, later: bool) -> _View:
        key = (shape, later)
        found = self._views.get(key)
        if found is None:
            ledgers = (self._later,) if later else (self._now, self._later)
            for ledger in ledgers:
                for name, _ in shape.requests:
                    self._column(ledger, name)
            view = _View(shape, ledgers, self.open_to(shape))
        else:
            view, seen = found
            if seen == len(self._changes):
                return view
            view.refresh(self._changes[seen:])
        self._views[key] = (view, len(self._changes))
        return view

    def _column(self, ledger: Ledger, resource: str) -> Column:
        found = ledger.get(resource)
        if found is None:
            found = ledger[resource] = np.zeros(len(self.table), dtype=np.int64)
        return found

    def _change(self, i: int, column: Column, delta: int) -> None:
        column[i] += delta
        self._log.append((i, column, delta))
        self._changes.append(i)


def ledgers_of(table: NodeTable, pods: Iterable[Pod]) -> tuple[Ledger, Ledger]:
    """What is free now, and later, of each resource."""
    now: dict[str, list[int]] = {}
    later: dict[str, list[int]] = {}
    for name, column in table.allocatable.items():
        now[name], later[name] = column.tolist(), column.tolist()
    for pod in pods:
        i = table.position.get(place_of(pod) or "")
        if i is None or not holds(pod):
            continue
        for name, n in pod.requests.items():
            if name not in now:
                now[name], later[name] = [0] * len(table), [0] * len(table)
            now[name][i] -= n
            if not pod.deleting:
                later[name][i] -= n
    return (
        {name: np.array(column, dtype=np.int64) for name, column in now.items()},
        {name: np.array(column, dtype=np.int64) for name, column in later.items()},
    )


def by_replica(pods: Iterable[Pod]) -> dict[int, list[Pod]]:
    """Pods that haven't ended, by replica index."""
    found: dict[int, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.replica_index is not None and pod.phase not in ENDED:
            found[pod.replica_index].append(pod)
    return found


def free_by_node(capacity: Capacity, resources: Iterable[str]) -> Mapping[str, dict[str, int]]:
    """node -> resource -> what it will have free."""
    columns = {name: capacity.later(name).tolist() for name in resources}
    return {
        node: {name: column[i] for name, column in columns.items()}
        for i, node in enumerate(capacity.table.names)
    }
