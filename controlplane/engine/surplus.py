"""What other jobs could still give, node by node: what a remedy counts on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controlplane.engine.blockers import Column, NodeColumns

Amounts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Surplus:
    """What a job could give: `above_minimum` by shrinking, `whole` by being preempted; both
    node -> resource -> amount (all that its pods hold there, cpu and memory too)."""

    workload: str
    priority: int
    above_minimum: Amounts
    whole: Amounts


class Donors:
    """Who could give what on which node, the lowest priorities first."""

    def __init__(self, surplus: Sequence[Surplus], nodes: NodeColumns, whole: bool) -> None:
        self.jobs = sorted(surplus, key=lambda job: (job.priority, job.workload))
        self.names = [job.workload for job in self.jobs]
        self.priorities = sorted({job.priority for job in self.jobs})
        self._nodes, self._whole = nodes, whole
        self._order = [job.priority for job in self.jobs]
        self._gifts: dict[str, tuple[Column, Column, Column]] = {}

    def end(self, upto: int) -> int:
        """How many donors have at most this priority."""
        return bisect_right(self._order, upto)

    def column(self, resource: str, end: int) -> Column:
        """What the first `end` donors give on each node."""
        who, where, much = self._flat(resource)
        last = int(np.searchsorted(who, end))
        given = np.bincount(where[:last], weights=much[:last], minlength=len(self._nodes))
        return given.astype(np.int64)

    def on(self, nodes: Column, resources: Iterable[str], end: int) -> list[int]:
        """Those of the first `end` that give something on some nodes, the lowest priority first."""
        found: set[int] = set()
        for resource in resources:
            who, where, _ = self._flat(resource)
            found.update(who[np.isin(where, nodes) & (who < end)].tolist())
        return sorted(found)

    def given(self, resource: str, donors: Sequence[int], nodes: Column) -> Column:
        """What some donors together give on some nodes."""
        who, where, much = self._flat(resource)
        theirs = np.isin(who, donors)
        given = np.bincount(where[theirs], weights=much[theirs], minlength=len(self._nodes))
        return given.astype(np.int64)[nodes]

    def _flat(self, resource: str) -> tuple[Column, Column, Column]:
        """Each gift of a resource: who gives (rising), on which node, and how much."""
        found = self._gifts.get(resource)
        if found is None:
            rows = [
                (number, self._nodes.position[node], amounts[resource])
                for number, job in enumerate(self.jobs)
                for node, amounts in (job.whole if self._whole else job.above_minimum).items()
                if node in self._nodes.position and amounts.get(resource)
            ]
            who, where, much = np.array(rows, dtype=np.int64).reshape(-1, 3).T
            found = self._gifts[resource] = (who, where, much)
        return found
