"""How fast a training job goes: useful samples a second by where its replicas are.

A job's work is an amount of *progress* in the model's own unit (samples, accelerator-seconds);
`JobModel.rate` says how much of it a second brings.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

#: replicas on each node that holds any, the most first: (4, 2) is six replicas on two nodes
Placement = tuple[int, ...]


class JobModel(Protocol):
    """Pure: the same placement and progress give the same rate."""

    def rate(self, placement: Placement, progress: float) -> float:
        """Progress a second once `progress` has been made; 0 for an empty placement."""
        ...

    def boundary(self, progress: float) -> float:
        """The next progress at which `rate` may change; infinite if it never does."""
        ...


def packed(replicas: int, per_node: int) -> Placement:
    """So many replicas on the fewest nodes that hold `per_node` each."""
    whole, rest = divmod(replicas, max(1, per_node))
    return (max(1, per_node),) * whole + ((rest,) if rest else ())


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """rate = `unit` x replicas^exponent x (1 - spread_loss)^(nodes - 1).

    With `unit` 1 the progress of a job of one replica is the seconds that it ran. `spread_loss`:
    part of the throughput that each further node costs (0: where the replicas are is the same).
    """

    exponent: float = 0.9
    unit: float = 1.0
    spread_loss: float = 0.0

    def rate(self, placement: Placement, progress: float) -> float:
        replicas = sum(placement)
        if not replicas:
            return 0.0
        alone = self.unit * replicas**self.exponent
        return float(alone * (1.0 - self.spread_loss) ** (len(placement) - 1))

    def boundary(self, progress: float) -> float:
        return math.inf


@dataclass(frozen=True, slots=True)
class TableModel:
    """Throughput by replica count as measured: linear in between, in proportion below the smallest
    and level above the largest."""

    table: Mapping[int, float]
    _sizes: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sizes = tuple(sorted(self.table))
        if not sizes or sizes[0] < 1 or any(self.table[n] <= 0 for n in sizes):
            raise ValueError("table must hold rates above 0 by replica count, 1 or more")
        object.__setattr__(self, "_sizes", sizes)

    def rate(self, placement: Placement, progress: float) -> float:
        replicas = sum(placement)
        if not replicas:
            return 0.0
        at = bisect_left(self._sizes, replicas)
        if at == len(self._sizes):
            return self.table[self._sizes[-1]]
        high = self._sizes[at]
        if high == replicas or at == 0:
            return self.table[high] * min(1.0, replicas / high)
        low = self._sizes[at - 1]
        part = (replicas - low) / (high - low)
        return self.table[low] + part * (self.table[high] - self.table[low])

    def boundary(self, progress: float) -> float:
        return math.inf
