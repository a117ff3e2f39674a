"""How often a replica may be replaced before the agent gives up."""

from __future__ import annotations

from collections import defaultdict, deque


class Budget:
    """At most `restarts` failures of a slot within `window` seconds."""

    def __init__(self, restarts: int, window: float) -> None:
        self.restarts, self.window = restarts, window
        self._failures: defaultdict[int, deque[float]] = defaultdict(deque)

    def spend(self, slot: int, now: float) -> bool:
        """Count a failure; False when it was one too many."""
        failures = self._failures[slot]
        failures.append(now)
        while failures[0] <= now - self.window:
            failures.popleft()
        return len(failures) <= self.restarts
