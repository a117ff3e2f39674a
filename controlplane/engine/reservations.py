"""Places that are kept for a demand that has waited long, or whose places come free bit by bit."""

from __future__ import annotations

import numpy as np

from controlplane.engine.decisions import Reservation
from controlplane.engine.ordering import Demand
from controlplane.engine.placement import Capacity, PodShape
from controlplane.engine.topology import Within


class Reserved:
    """The reservations of one cycle."""

    def __init__(self) -> None:
        self.made: list[Reservation] = []
        self._shapes: list[PodShape] = []

    def make(self, demand: Demand, pods: int, capacity: Capacity) -> int:
        """Keeps as many of the places that `pods` pods need as are there now; how many. None for
        what the cluster could not hold if it were empty, and only such places as go together."""
        where = could_hold(demand, capacity)
        if where is None:
            return 0
        nodes: dict[str, dict[str, int]] = {}
        found = 0
        while found < pods:
            place = capacity.take_at(demand.shape, where)
            if place is None:
                break
            amounts = nodes.setdefault(place, {})
            for name, n in demand.shape.requests:
                amounts[name] = amounts.get(name, 0) + n
            found += 1
        if found:
            self.made.append(Reservation(demand.name, demand.priority, nodes))
        return found

    def holder(
        self, shape: PodShape, pods: int, within: Within | None, capacity: Capacity
    ) -> str | None:
        """Whose reservation alone keeps so many pods from their places; None: there is another
        reason."""
        for reservation in self.made:
            mark = capacity.mark()
            for node, amounts in reservation.nodes.items():
                capacity.give_back(node, amounts)
            fits = capacity.fitting(shape, pods, within) >= pods
            capacity.rollback(mark)
            if fits:
                return reservation.demand
        return None


def could_hold(demand: Demand, capacity: Capacity) -> np.ndarray | None:
    """Nodes that would hold one unit of a demand if they were empty, in one domain if that is
    required: the one with the most places now. None if there are none."""
    empty = capacity.when_empty(demand.shape)
    within = demand.within
    if within is None or not within.required:
        return empty > 0 if int(empty.sum()) >= demand.pods_per_unit else None
    numbers, names = capacity.table.domains(within.level)
    inside = numbers >= 0
    most = np.bincount(numbers[inside], weights=empty[inside], minlength=len(names))
    free = capacity.fits(demand.shape, later=True)
    there = np.bincount(numbers[inside], weights=free[inside], minlength=len(names))
    able = [
        i
        for i in np.argsort(-there, kind="stable")
        if most[i] >= demand.pods_per_unit and within.domain in (None, names[i])
    ]
    return (numbers == able[0]) & (empty > 0) if able else None
