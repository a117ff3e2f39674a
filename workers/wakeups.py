"""Coalescing: many events in a few tens of milliseconds wake the loop once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.cluster.channels import Channel


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Why the loop woke: which channels, and when the first of the events arrived (unix s)."""

    channels: frozenset[Channel]
    first_event_at: float


class Wakeups:
    """Collects channel events from the sources' threads for the one loop that waits for them."""

    def __init__(self, window_s: float = 0.03, *, clock: Callable[[], float] = time.time) -> None:
        self._window_s = window_s
        self._clock = clock
        self._condition = threading.Condition()
        self._channels: set[Channel] = set()
        self._first: float | None = None
        self._nudged = False

    def event(self, channel: Channel) -> None:
        """Something happened on a channel. Never blocks."""
        with self._condition:
            self._channels.add(channel)
            if self._first is None:
                self._first = self._clock()
            self._condition.notify_all()

    def nudge(self) -> None:
        """Make `wait` return now, without an event (stop, a timer that moved)."""
        with self._condition:
            self._nudged = True
            self._condition.notify_all()

    def wait(self, timeout_s: float) -> Wakeup | None:
        """The next burst of events, whole: returned once the window after its first has passed.

        None when the time-out passes, or on a nudge, with no event.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._channels or self._nudged, timeout_s)
            if not self._channels:
                self._nudged = False
                return None
            assert self._first is not None
            self._condition.wait_for(lambda: self._nudged, self._left())
            self._nudged = False
            found = Wakeup(frozenset(self._channels), self._first)
            self._channels.clear()
            self._first = None
            return found

    def _left(self) -> float:
        assert self._first is not None
        return max(0.0, self._first + self._window_s - self._clock())
