"""What would let a demand that waits have its places: the smallest set of changes found.

Single changes come before pairs, and among them those that cost least to make. Each is checked by
counting: with it, all pods that are missing find nodes (in one topology domain, if they must).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np

from controlplane.engine.blockers import (
    CORDON,
    Column,
    NodeColumns,
    Room,
    units_of,
)
from controlplane.engine.nodetable import NodeTable
from controlplane.engine.placement import PodShape
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import ClusterSnapshot
from controlplane.engine.surplus import Amounts, Donors, Surplus
from controlplane.engine.types import ReclaimPolicy, Taint

__all__ = ["Missing", "Remedies", "Surplus"]

#: names that a sentence carries; the rest are counted
MOST_NAMED = 8
#: with more donors than this, those that could be spared aren't looked for
MOST_WEIGHED = 12
#: a pod that asks for one of these asks for one node: others don't help it
OF_ONE_NODE = ("kubernetes.io/hostname", "metadata.name")


@dataclass(frozen=True, slots=True)
class Missing:
    """A demand that waits. `pods` in all, of which `placed` have places; `pods_together` of them
    (a gang) only help at once. `quota_missing`: accelerators that its queue may not use, 0 if
    quota is no obstacle. Of a job's start: `minimum` replicas of `pods_per_replica`, and
    `could_start_with` replicas that find room, and quota, now. `level`: node label within one
    value of which (`domain`, if it is in one already) all pods must lie."""

    name: str
    priority: int
    priority_class: str
    shape: PodShape
    pods: int
    pods_together: int
    placed: int
    queue: str
    quota_missing: int
    reclaim: ReclaimPolicy
    minimum: int | None = None
    pods_per_replica: int = 1
    could_start_with: int = 0
    level: str = ""
    domain: str = ""

    @property
    def lacking(self) -> int:
        """Pods without a place; a gang that isn't whole has none."""
        missing = max(0, self.pods - self.placed)
        return -(-missing // self.pods_together) * self.pods_together

    @property
    def accelerator(self) -> tuple[str, int]:
        return (self.shape.accelerators or (("accelerators", 0),))[0]


@dataclass(frozen=True, slots=True)
class _Change:
    """What is changed. `opens`: the obstacles on nodes that go. Donors up to priority `upto` give
    what is above their minimum, or (`whole`) all."""

    code: ReasonCode
    opens: int = 0
    upto: int | None = None
    whole: bool = False
    policy: ReclaimPolicy | None = None


class Remedies:
    """Of one cycle. `free`: of a resource, what each node has free once what leaves has left,
    cordoned nodes too, after everything that was served. `donors`: what others could give above
    their minimum (False) or in all (True)."""

    def __init__(
        self,
        nodes: NodeColumns,
        free: Callable[[str], Column],
        donors: Mapping[bool, Donors],
    ) -> None:
        self.nodes, self.free, self._donors = nodes, free, donors
        self._rooms: dict[tuple[object, ...], Room] = {}
        self._most: dict[object, int] = {}

    @classmethod
    def of(
        cls,
        snapshot: ClusterSnapshot,
        free: Amounts,
        surplus: Sequence[Surplus],
        closed: Iterable[str] = (),
    ) -> Remedies:
        """`free`: node -> resource -> amount. `closed`: nodes that get nothing new."""
        nodes = NodeColumns(NodeTable(snapshot.nodes), closed)
        nothing: Mapping[str, int] = {}

        @cache
        def column(resource: str) -> Column:
            amounts = [free.get(name, nothing).get(resource, 0) for name in nodes.names]
            return np.array(amounts, dtype=np.int64)

        donors = {whole: Donors(surplus, nodes, whole) for whole in (False, True)}
        return cls(nodes, column, donors)

    def for_(self, missing: Missing) -> tuple[Reason, ...]:
        """The changes to make together, one or two; NOTHING_FOUND alone if none help."""
        case = _Case(missing, self)
        changes = case.with_quota() if missing.quota_missing else case.alone()
        return changes or (_nothing(missing),)

    # -- what is asked of the cluster --------------------------------------------------------

    def room(self, missing: Missing, upto: int | None = None, whole: bool = False) -> Room:
        """Pods of a shape that find nodes, by obstacle and domain, if donors up to a priority gave
        all that they could."""
        end = 0 if upto is None else self._donors[whole].end(upto)
        key = (missing.shape, missing.level, missing.domain, end, whole and end > 0)
        found = self._rooms.get(key)
        if found is None:
            blockers = self.nodes.blockers(missing.shape)
            columns = {name: self.free(name) for name, _ in missing.shape.requests}
            if end:
                for name in columns:
                    columns[name] = columns[name] + self._donors[whole].column(name, end)
            units = units_of(missing.shape, columns, len(self.nodes))
            found = self._rooms[key] = Room(units, blockers, *self._domains(missing))
        return found

    def donors(self, whole: bool) -> Donors:
        return self._donors[whole]

    def most_on_a_node(self, shape: PodShape) -> int:
        """Pods of a shape that the largest node would hold if it were empty."""
        found = self._most.get(shape.requests)
        if found is None:
            columns = {name: self.nodes.allocatable(name) for name, _ in shape.requests}
            units = units_of(shape, columns, len(self.nodes))
            found = self._most[shape.requests] = int(units.max(initial=0))
        return found

    def _domains(self, missing: Missing) -> tuple[Column, int]:
        """For each node the number of its domain, -1 for one that won't do."""
        if not missing.level:
            return np.zeros(len(self.nodes), dtype=np.int64), 1
        codes, values = self.nodes.label(missing.level)
        usable = [value is not None and missing.domain in ("", value) for value in values]
        return np.where(np.array(usable or [False])[codes], codes, -1), max(1, len(values))


class _Case:
    """One demand: which changes there are, and which of them are enough.

    `_here`: pods that find nodes as things are; `_may`: also counting what it may take from others
    already. Where that would be enough and the planner still said no, it knew more (a bound on
    disruption): what may be taken counts for nothing then.
    """

    def __init__(self, missing: Missing, remedies: Remedies) -> None:
        self.missing, self._remedies = missing, remedies
        self._lacking = missing.lacking
        self._room = remedies.room(missing)
        self._open = np.where(self._room.bits == 0, self._room.units, 0)
        self._here = self._room.pods()
        self._below = missing.priority - 1
        self._whole = missing.reclaim is ReclaimPolicy.PREEMPT_WHOLE
        self._takes = missing.reclaim is not ReclaimPolicy.NEVER
        self._may = self._here
        if self._takes:
            self._may = remedies.room(missing, self._below, self._whole).pods()

    def alone(self) -> tuple[Reason, ...]:
        if self._here >= self._lacking:
            return (because(ReasonCode.WAIT_FOR_RELEASE),)
        return (
            self._first(self._openers())
            or self._lower_minimum()
            or self._first(self._takers())
            or self._add_nodes()
            or self._pairs()
        )

    def with_quota(self) -> tuple[Reason, ...]:
        """Quota is an obstacle: nothing helps without more of it, but a start with less. What it
        may take from others wasn't tried yet, so it counts."""
        missing = self.missing
        resource, _ = missing.accelerator
        more = because(
            ReasonCode.RAISE_QUOTA,
            accelerators=missing.quota_missing, resource=resource, queue=missing.queue,
        )  # fmt: skip
        if max(self._here, self._may) >= self._lacking:
            return (more,)
        lower = self._lower_minimum()
        if lower:
            return lower
        other = self._first(self._openers()) or self._first(self._takers()) or self._add_nodes()
        return (more, *other) if other else ()

    # -- changes -----------------------------------------------------------------------------

    def _openers(self) -> list[_Change]:
        """Obstacles on nodes that could go: cordons, then taints, then selectors; of one kind the
        one that opens most first. Then the same with what it may take from others there."""
        blockers = self._room.blockers
        taints = [_Change(ReasonCode.TOLERATE_TAINT, opens=bit) for bit in blockers.taints]
        keys = [_Change(ReasonCode.RELAX_SELECTOR, opens=bit) for bit in blockers.keys]
        openers = [
            _Change(ReasonCode.UNCORDON_NODES, opens=CORDON),
            *sorted(taints, key=lambda one: -self._room.pods(one.opens)),
            *sorted(keys, key=lambda one: -self._room.pods(one.opens)),
        ]
        if not self._takes or self._may >= self._lacking:
            return openers
        taking = [replace(one, upto=self._below, whole=self._whole) for one in openers]
        return openers + taking

    def _takers(self, opens: int = 0) -> Iterator[_Change]:
        """More that it may take from others: by a higher priority, then by another policy."""
        policy = self.missing.reclaim
        if self._takes and self._may >= self._lacking:
            return
        if self._takes:
            level = self._least_level(opens)
            if level is not None:
                yield _Change(ReasonCode.RAISE_PRIORITY, opens, level, self._whole)
        code = ReasonCode.ALLOW_RECLAIM
        if policy is ReclaimPolicy.NEVER:
            yield _Change(code, opens, self._below, False, ReclaimPolicy.RECLAIM_ELASTIC)
        if policy is not ReclaimPolicy.PREEMPT_WHOLE:
            yield _Change(code, opens, self._below, True, ReclaimPolicy.PREEMPT_WHOLE)

    def _least_level(self, opens: int) -> int | None:
        """The lowest priority of donors that is enough: the more may give, the more room."""
        priorities = self._remedies.donors(self._whole).priorities
        levels = [priority for priority in priorities if priority > self._below]
        low, high = 0, len(levels)
        while low < high:
            middle = (low + high) // 2
            change = _Change(ReasonCode.RAISE_PRIORITY, opens, levels[middle], self._whole)
            low, high = (low, middle) if self._enough(change) else (middle + 1, high)
        return levels[low] if low < len(levels) else None

    def _lower_minimum(self) -> tuple[Reason, ...]:
        missing = self.missing
        if missing.minimum is None:
            return ()
        fits = min(missing.could_start_with, self._here // missing.pods_per_replica)
        if not 0 < fits < missing.minimum:
            return ()
        return (because(ReasonCode.LOWER_MINIMUM, min=fits),)

    def _add_nodes(self) -> tuple[Reason, ...]:
        if _names_a_node(self.missing.shape):
            return ()
        resource, n = self.missing.accelerator
        need = self._lacking - (self._may if self._may < self._lacking else self._here)
        each = min(need, max(1, self._remedies.most_on_a_node(self.missing.shape)))
        return (
            because(
                ReasonCode.ADD_NODES,
                nodes=-(-need // each), accelerators=each * n, resource=resource,
            ),
        )  # fmt: skip

    def _pairs(self) -> tuple[Reason, ...]:
        openers = self._openers()
        for first, second in combinations(openers, 2):
            if first.upto == second.upto:
                both = replace(first, opens=first.opens | second.opens)
                if self._enough(both):
                    return self._said(both)
        singles = [one for one in openers if one.upto is None]
        return self._first(taker for one in singles for taker in self._takers(one.opens))

    def _enough(self, change: _Change) -> bool:
        room = self._remedies.room(self.missing, change.upto, change.whole)
        return room.pods(change.opens) >= self._lacking

    def _first(self, changes: Iterable[_Change]) -> tuple[Reason, ...]:
        """What is said of the first change that is enough; nothing if none is."""
        return next((self._said(change) for change in changes if self._enough(change)), ())

    # -- what is said of them ----------------------------------------------------------------

    def _said(self, change: _Change) -> tuple[Reason, ...]:
        room = self._remedies.room(self.missing, change.upto, change.whole)
        nodes = self._needed(room, change.opens)
        said = list(self._opened(change.opens, nodes))
        if change.code is ReasonCode.RAISE_PRIORITY:
            donors = self._donors(change, room, nodes)
            said.append(because(change.code, priority=change.upto or 0, donors=donors))
        elif change.code is ReasonCode.ALLOW_RECLAIM:
            donors = self._donors(change, room, nodes)
            said.append(because(change.code, policy=str(change.policy), donors=donors))
        return tuple(said)

    def _needed(self, room: Room, opens: int) -> Column:
        """The fewest nodes that hold, beside what is open and free, what is missing."""
        usable = room.usable(opens)
        gain = room.units[usable] - self._open[usable]
        order = np.argsort(-gain, kind="stable")
        need = self._lacking - int(self._open[usable].sum())
        last = int(np.searchsorted(np.cumsum(gain[order]), need)) + 1
        return np.sort(usable[order[:last]])

    def _opened(self, opens: int, nodes: Column) -> Iterator[Reason]:
        blockers = self._room.blockers
        for bit in (CORDON, *blockers.taints, *blockers.keys):
            if not opens & bit:
                continue
            names = _named([self._remedies.nodes.names[i] for i in nodes if self._bits(i) & bit])
            if bit == CORDON:
                yield because(ReasonCode.UNCORDON_NODES, nodes=names)
            elif bit in blockers.taints:
                taint = _written(blockers.taints[bit])
                yield because(ReasonCode.TOLERATE_TAINT, taint=taint, nodes=names)
            else:
                selector = blockers.keys[bit]
                yield because(ReasonCode.RELAX_SELECTOR, selector=selector, nodes=names)

    def _bits(self, node: int) -> int:
        return int(self._room.bits[node])

    def _donors(self, change: _Change, room: Room, nodes: Column) -> str:
        """Those who give on the nodes that are needed, without those that can be spared: the
        highest priorities first."""
        donors, shape = self._remedies.donors(change.whole), self.missing.shape
        end = donors.end(change.upto or 0)
        resources = [name for name, _ in shape.requests]
        giving = donors.on(nodes, resources, end)
        usable = room.usable(change.opens)
        others = usable[~np.isin(usable, nodes)]
        need = self._lacking - int(self._open[others].sum())
        free = {name: self._remedies.free(name)[nodes] for name in resources}
        for one in list(reversed(giving)) if len(giving) <= MOST_WEIGHED else ():
            kept = [other for other in giving if other != one]
            columns = {name: free[name] + donors.given(name, kept, nodes) for name in resources}
            if int(units_of(shape, columns, len(nodes)).sum()) >= need:
                giving = kept
        return _named([donors.names[number] for number in giving])


def _nothing(missing: Missing) -> Reason:
    resource, n = missing.accelerator
    lacking = missing.lacking * n
    return because(ReasonCode.NOTHING_FOUND, accelerators=lacking, resource=resource)


def _names_a_node(shape: PodShape) -> bool:
    """Whether only one node, or some that are named, will do: a new one doesn't help."""
    if any(key in OF_ONE_NODE for key, _ in shape.node_selector):
        return True
    return bool(shape.affinity) and all(
        any(need.key in OF_ONE_NODE and need.operator == "In" for need in term)
        for term in shape.affinity
    )


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    listed = ", ".join(names[:MOST_NAMED])
    return f"{listed} and {more} more" if more > 0 else listed


def _written(taint: Taint) -> str:
    """As kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
