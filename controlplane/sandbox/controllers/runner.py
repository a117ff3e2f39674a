"""What the controllers share: a queue of keys with timers, and the loop that works it off.

Reconciling is synchronous and everything lives in one loop, so a `sync` sees the store as it is
and no write of its can conflict. Nothing polls: a key is worked on when an event or a timer says
so, and once for however many events came in between (client-go's workqueue, in short).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.errors import ApiError
from controlplane.sandbox.store import Event, Store

logger = logging.getLogger("sandbox.controllers")
K = TypeVar("K", bound=Hashable)

_TURN = 0.01  # seconds of work between two turns of the loop: requests are answered meanwhile
_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0
_EARLY = 0.001  # a timer that fires this much early counts as due


class WorkQueue(Generic[K]):
    """Keys that are due, each once, and keys that become due at a time of the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: dict[K, None] = {}
        self._wake = asyncio.Event()
        self._when: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = 0
        self._timer: asyncio.Task[None] | None = None
        self._armed_for = float("inf")

    def add(self, key: K) -> None:
        """Make `key` due now."""
        self._ready[key] = None
        self._wake.set()

    def add_at(self, key: K, when: float) -> None:
        """Make `key` due at `when` (unix seconds); the earliest of several times counts."""
        if when <= self._clock.now():
            self.add(key)
            return
        if self._when.get(key, float("inf")) <= when:
            return
        self._when[key] = when
        self._serial += 1
        heapq.heappush(self._heap, (when, self._serial, key))
        self._arm()

    async def next(self) -> K:
        """The next key that is due."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = next(iter(self._ready))
        del self._ready[key]
        return key

    async def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._timer
            self._timer = None

    def _arm(self) -> None:
        if not self._heap or self._heap[0][0] >= self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._heap[0][0]
        self._timer = asyncio.create_task(self._ring(self._armed_for))

    async def _ring(self, when: float) -> None:
        await self._clock.sleep(max(when - self._clock.now(), 0.0))
        self._timer, self._armed_for = None, float("inf")
        now = self._clock.now() + _EARLY
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._when.get(key) == due:
                del self._when[key]
                self.add(key)
        self._arm()


async def run_controller(
    store: Store,
    clock: Clock,
    *,
    name: str,
    first: Iterable[K],
    keys_of: Callable[[Event], Iterable[K]],
    sync: Callable[[K], float | None],
    queue: WorkQueue[K] | None = None,
) -> None:
    """Work until cancelled.

    `first`: the keys to begin with. `keys_of(event)`: the keys that a change concerns.
    `sync(key)`: brings the key's object to its state, and returns when (unix seconds) it wants to
    be called again, if it does. `queue`: for callers that add keys themselves.

    A refusal of the API is logged and tried again, ever more rarely.
    """
    queue = queue or WorkQueue(clock)
    watch = store.watch()
    for key in first:
        queue.add(key)

    async def pump() -> None:
        async for event in watch:
            for key in keys_of(event):
                queue.add(key)

    pumping = asyncio.create_task(pump(), name=f"{name}-events")
    failures: dict[K, int] = {}
    clock_of_loop = asyncio.get_running_loop().time
    turn = clock_of_loop()
    try:
        while True:
            key = await queue.next()
            try:
                again = sync(key)
                failures.pop(key, None)
            except ApiError as error:
                failures[key] = failures.get(key, 0) + 1
                again = clock.now() + min(_FIRST_RETRY * 2 ** (failures[key] - 1), _LAST_RETRY)
                logger.warning("%s: %s: %s", name, key, error)
            if again is not None:
                queue.add_at(key, again)
            if clock_of_loop() - turn > _TURN:
                await asyncio.sleep(0)
                turn = clock_of_loop()
    finally:
        pumping.cancel()
        watch.close()
        await queue.close()
