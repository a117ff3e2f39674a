"""What happens when, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any


class Agenda:
    """Calls in order of their times; those of one time in the order in which they were entered."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = count()

    def at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call at a time; at once (in order) if that has passed."""
        heapq.heappush(self._heap, (max(when, self.now), next(self._number), call, arguments))

    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def run_all_at(self, when: float) -> None:
        """Move the clock and do everything that is due then, also what that enters."""
        self.now = when
        while self._heap and self._heap[0][0] <= when:
            _, _, call, arguments = heapq.heappop(self._heap)
            call(*arguments)
