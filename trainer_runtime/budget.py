"""How often a failure is met in this process before it goes one level up. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Budget:
    """At most `limit` failures within `window` seconds; one more is for the next level (the agent
    replaces the process; it has a budget too, and then the control plane the job)."""

    limit: int
    window: float
    _at: deque[float] = field(default_factory=deque)

    def spend(self, now: float) -> bool:
        """Whether this failure is still within the budget."""
        while self._at and now - self._at[0] >= self.window:
            self._at.popleft()
        if len(self._at) >= self.limit:
            return False
        self._at.append(now)
        return True
