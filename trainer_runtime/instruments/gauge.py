"""Throughput over the time since the last report. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """`seconds` is the window's length; None where nothing was counted or no time has passed."""

    seconds: float
    steps: int
    samples_per_s: float | None
    tokens_per_s: float | None
    step_ms: float | None
    bytes_moved: int | None


class Gauge:
    """Counts over a window that `restart` begins. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Begin a window. Called after a pause too, since a pause is no throughput."""
        self._since = self._clock()
        self._steps = self._samples = 0
        self._tokens: int | None = None
        self._bytes: int | None = None

    def add(self, samples: int, tokens: int | None = None, bytes_moved: int | None = None) -> None:
        """A step was committed. None stands for unknown, and adds nothing."""
        self._steps += 1
        self._samples += samples
        if tokens is not None:
            self._tokens = (self._tokens or 0) + tokens
        if bytes_moved is not None:
            self._bytes = (self._bytes or 0) + bytes_moved

    @property
    def seconds(self) -> float:
        return self._clock() - self._since

    def rates(self) -> Rates:
        """Of the window so far; it goes on."""
        spent = self.seconds
        known = spent > 0
        return Rates(
            seconds=spent,
            steps=self._steps,
            samples_per_s=self._samples / spent if known and self._steps else None,
            tokens_per_s=self._tokens / spent if known and self._tokens is not None else None,
            step_ms=1000 * spent / self._steps if self._steps else None,
            bytes_moved=self._bytes,
        )
