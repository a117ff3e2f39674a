"""Change events, their bounded history, and the watchers that they are handed to."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from controlplane.sandbox.errors import Expired
from controlplane.sandbox.kinds import KindInfo


def encode(obj: Any) -> bytes:
    """Compact JSON, UTF-8."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()


class Stored:
    """One version of one object: the dict, never mutated, and its JSON, made once."""

    __slots__ = ("_raw", "obj")

    def __init__(self, obj: dict[str, Any]) -> None:
        self.obj = obj
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """The version as JSON; every list and watch that sends it shares these bytes."""
        if self._raw is None:
            self._raw = encode(self.obj)
        return self._raw

    @property
    def item(self) -> bytes:
        """The JSON as a list's item: without kind and apiVersion, which the list has."""
        head = encode({"kind": self.obj["kind"], "apiVersion": self.obj["apiVersion"]})
        return b"{" + self.raw[len(head) :]


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `object` is the new version (for DELETED the last one); don't mutate it."""

    type: str
    kind: KindInfo
    object: dict[str, Any]
    resource_version: int
    previous: dict[str, Any] | None = field(default=None, repr=False)
    stored: Stored | None = field(default=None, repr=False)


class Watch:
    """An asynchronous iterator of events; `close` ends it. Registered when it is made.

    `limit` bounds the events that wait: a watcher that doesn't keep up ends with Expired, as the
    real server drops slow watchers, and its client lists again.
    """

    def __init__(self, closed: Callable[[Watch], None], limit: int | None = None) -> None:
        self._queue: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._closed = closed
        self._limit = limit
        self._ended = False
        self._error: Exception | None = None

    def push(self, event: Event) -> None:
        """Hand one event over (store only)."""
        if self._ended:
            return
        if self._limit is not None and len(self._queue) >= self._limit:
            self.fail(Expired(f"watcher fell {self._limit} events behind; list again"))
            return
        self._queue.append(event)
        self._wake.set()

    def fail(self, error: Exception) -> None:
        """Drop what waits and make the iterator raise `error`."""
        self._queue.clear()
        self._error = error
        self.close()

    def close(self) -> None:
        """End the iteration once the events that wait are read."""
        if not self._ended:
            self._ended = True
            self._closed(self)
        self._wake.set()

    def drain(self) -> list[Event]:
        """The events that wait, without waiting."""
        waiting = list(self._queue)
        self._queue.clear()
        return waiting

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for events; False when `seconds` pass or the watch has ended."""
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._ended:
                return False
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                return bool(self._queue)
        return True

    @property
    def ended(self) -> bool:
        """Whether no further event will be handed over."""
        return self._ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not await self.wait():
            raise StopAsyncIteration
        return self._queue.popleft()


class History:
    """The last events of each kind, so that a watch can resume from a resourceVersion."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._events: dict[str, deque[Event]] = {}
        self._dropped: dict[str, int] = {}
        self._start = 0

    @property
    def start(self) -> int:
        """The version at which the history was last begun."""
        return self._start

    def begin(self, version: int) -> None:
        """Forget everything up to `version` (start-up, or compaction)."""
        self._events.clear()
        self._dropped.clear()
        self._start = version

    def add(self, event: Event) -> None:
        events = self._events.setdefault(event.kind.kind, deque())
        if len(events) >= self._size:
            self._dropped[event.kind.kind] = events.popleft().resource_version
        events.append(event)

    def oldest(self, kind: KindInfo | None) -> int:
        """The oldest version from which a watch of `kind` misses nothing."""
        if kind is None:
            return max([self._start, *self._dropped.values()])
        return max(self._start, self._dropped.get(kind.kind, 0))

    def since(self, kind: KindInfo | None, version: int) -> Iterable[Event]:
        """Events after `version`, in order; Expired when some of them are gone."""
        oldest = self.oldest(kind)
        if version < oldest:
            raise Expired.version(version, oldest)
        if kind is not None:
            found = self._events.get(kind.kind, ())
            return [event for event in found if event.resource_version > version]
        merged = [e for events in self._events.values() for e in events]
        merged.sort(key=lambda event: event.resource_version)
        return [event for event in merged if event.resource_version > version]
