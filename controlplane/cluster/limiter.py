"""A token bucket for one client's requests.

Each cluster connection has its own; the leader lease lives in our database and never passes
through here, so a burst of reconciles can't make us lose it (kueue 15537).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """At most `burst` requests at once and `rate` a second after that. Thread-safe."""

    def __init__(
        self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"rate {rate} must be > 0 and burst {burst} >= 1")
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._clock = clock
        self._at = clock()
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Take one token; return the seconds to wait before using it (0 when none)."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
            self._tokens -= 1
            return max(0.0, -self._tokens / self._rate)

    def wait(self) -> None:
        """Block until one request may be sent."""
        delay = self.reserve()
        if delay > 0:
            time.sleep(delay)
