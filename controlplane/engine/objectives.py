"""How the accelerators of a group of equals are shared: first version, fair share only."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.engine.types import Objective


@dataclass(frozen=True, slots=True)
class Claim:
    """One elastic job that takes part in sharing accelerators."""

    key: str
    sizes: tuple[int, ...]
    held: int
    per_replica: int
    weight: float
    rate: Callable[[int], float]
    remaining: float | None
    attained: float
    pause_s: float
    floor: int = 0
    frozen: bool = False


def share(claims: Sequence[Claim], units: int, objective: Objective) -> dict[str, int]:
    """Replicas for each claim (a valid size, or 0)."""
    sizes = {claim.key: claim.held if claim.frozen else 0 for claim in claims}
    left = units - sum(sizes[claim.key] * claim.per_replica for claim in claims)
    queue: list[tuple[float, str, int, Claim]] = []
    for claim in claims:
        if not claim.frozen:
            heapq.heappush(queue, (-1.0 if claim.held else 0.0, claim.key, 0, claim))
    while queue:
        _, key, at, claim = heapq.heappop(queue)
        if at >= len(claim.sizes):
            continue
        needs = (claim.sizes[at] - sizes[key]) * claim.per_replica
        if needs > left:
            continue
        left -= needs
        sizes[key] = claim.sizes[at]
        heapq.heappush(queue, (sizes[key] * claim.per_replica / claim.weight, key, at + 1, claim))
    return sizes
