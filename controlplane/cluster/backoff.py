"""Exponential back-off with full jitter; randomness is an argument."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays of 0..first, 0..2*first, ... up to 0..`most` seconds, never under `least`.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (full jitter).
    """

    first: float = 0.2
    most: float = 15.0
    least: float = 0.05
    rng: random.Random = field(default_factory=random.Random)
    _failures: int = 0

    def next(self) -> float:
        """Seconds to wait after one more failure."""
        ceiling = min(self.most, self.first * 2.0**self._failures)
        self._failures = min(self._failures + 1, 30)
        return max(self.least, self.rng.uniform(0, ceiling))

    def reset(self) -> None:
        """Something worked: start again from the first delay."""
        self._failures = 0
