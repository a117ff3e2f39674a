"""Time for the sandbox, as an argument: the wall clock, or one that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the store and the controllers may know of time."""

    def now(self) -> float:
        """Unix time in seconds."""

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` of this clock have passed."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until `advance` moves it; sleepers wake in order."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time forward, letting each sleeper run at its own instant."""
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not future.done():
                future.set_result(None)
            await self.settle()
        self._now = end
        await self.settle()

    async def settle(self, rounds: int = 20) -> None:
        """Let tasks that are ready run, without moving time."""
        for _ in range(rounds):
            await asyncio.sleep(0)


def rfc3339(seconds: float) -> str:
    """`2026-12-01T01:02:03Z`: metav1.Time has whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """`2026-12-01T01:02:03.000004Z`: metav1.MicroTime (leases, events)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> float:
    """Unix seconds of a metav1.Time or MicroTime; ValueError for anything else."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
