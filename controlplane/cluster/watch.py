"""List, then watch from there, for ever: one `Source` a resource, each in its own thread.

What can happen, and what is done about it:
- the watch ends by itself (server time-out): resumed from the last resourceVersion, nothing lost;
- 410 Gone, as a status or as an ERROR event (kopf 8): listed again, the cache replaced as a whole,
  so an object deleted meanwhile leaves no ghost (kueue 10495);
- no answer: the sink is told that the source is lost, retried with back-off and jitter;
- a resumed watch replays events that we have seen (kopf 42): dropped by resourceVersion, which
  Kubernetes defines as comparable for one resource type (KEP-5504).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from controlplane.cluster.backoff import Backoff
from controlplane.cluster.interface import (
    Cluster,
    ClusterError,
    EventType,
    Gone,
    Manifest,
    Resource,
    Unreachable,
    Verb,
    WatchEvent,
    WatchStream,
)

log = logging.getLogger(__name__)

PAGE_SIZE = 500
#: short enough that a connection that died unnoticed is found within this time
WATCH_TIMEOUT_S = 60


class Sink(Protocol):
    """Where a source delivers. Called from the source's thread."""

    def replace(self, resource: Resource, items: list[Manifest]) -> None:
        """A whole list: what isn't in it is gone."""
        ...

    def apply(self, resource: Resource, event: WatchEvent) -> None:
        """One ADDED, MODIFIED or DELETED event."""
        ...

    def alive(self, resource: Resource) -> None:
        """The source is listed and its watch is open, or it has just been heard from."""
        ...

    def lost(self, resource: Resource, error: ClusterError) -> None:
        """Nothing is known from now on, until `alive`."""
        ...


def list_all(cluster: Cluster, resource: Resource) -> tuple[list[Manifest], str]:
    """Every object of one resource and the version to watch from.

    Raises Gone when a continue token expired halfway: start again.
    """
    items: list[Manifest] = []
    token = ""
    while True:
        page = cluster.list(resource, limit=PAGE_SIZE, continue_token=token)
        items.extend(page.items)
        token = page.continue_token
        if not token:
            return items, page.resource_version


class Source:
    """Follows one resource of one cluster into a sink until stopped."""

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        sink: Sink,
        *,
        backoff: Backoff | None = None,
        watch_timeout_s: int = WATCH_TIMEOUT_S,
    ) -> None:
        self._cluster = cluster
        self._resource = resource
        self._sink = sink
        self._backoff = backoff or Backoff()
        self._watch_timeout_s = watch_timeout_s
        self._version = ""  # the last one seen; empty: list first
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stream: WatchStream | None = None
        name = f"watch-{cluster.name}-{resource.plural}"
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; returns at once. `join` waits."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.stop()

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended within the time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def run(self) -> None:
        """The thread's body. Never raises: whatever goes wrong is told to the sink and retried."""
        while not self._stopping.is_set():
            delay = 0.0
            try:
                self._follow()
                continue
            except Gone as error:
                log.info("%s: listing again", error)
                self._version = ""
                delay = self._backoff.next()
            except ClusterError as error:
                if not self._stopping.is_set():
                    self._sink.lost(self._resource, error)
                    delay = self._delay(error)
            except Exception as error:  # a bug must not end the watch silently
                log.exception("watch of %s failed", self._resource)
                self._version = ""
                self._sink.lost(self._resource, self._unexpected(error))
                delay = self._backoff.next()
            self._stopping.wait(delay)

    def _follow(self) -> None:
        """List if needed, then one watch to its end."""
        if not self._version:
            items, version = list_all(self._cluster, self._resource)
            self._sink.replace(self._resource, items)
            self._version = version
        stream = self._cluster.watch(
            self._resource,
            resource_version=self._version,
            timeout_s=self._watch_timeout_s,
        )
        with self._lock:
            self._stream = stream
            if self._stopping.is_set():
                stream.stop()
        self._sink.alive(self._resource)
        try:
            for event in stream:
                self._receive(event)
        finally:
            with self._lock:
                self._stream = None

    def _receive(self, event: WatchEvent) -> None:
        self._backoff.reset()
        if is_replay(event.resource_version, self._version):
            return
        if event.resource_version:
            self._version = event.resource_version
        if event.type is EventType.BOOKMARK:
            self._sink.alive(self._resource)
        else:
            self._sink.apply(self._resource, event)

    def _delay(self, error: ClusterError) -> float:
        asked = error.retry_after_s if isinstance(error, Unreachable) else None
        return max(self._backoff.next(), asked or 0.0)

    def _unexpected(self, error: Exception) -> ClusterError:
        return Unreachable(
            self._cluster.name,
            verb=Verb.WATCH,
            object=str(self._resource),
            detail=f"{type(error).__name__}: {error}.",
            remedy="This is a defect in Concertina; the log has the traceback.",
        )


def is_replay(version: str, seen: str) -> bool:
    """Whether an event's version is one that was already seen; False when they don't compare."""
    if not (version.isdecimal() and seen.isdecimal()):
        return False
    return int(version) <= int(seen)


class SourceGroup:
    """The sources of one cluster, started and stopped together."""

    def __init__(self, sources: list[Source]) -> None:
        self._sources = sources

    def start(self) -> None:
        for source in self._sources:
            source.start()

    def stop(self, timeout_s: float = 2.0) -> bool:
        """Stop all; whether all have ended within `timeout_s` together."""
        for source in self._sources:
            source.stop()
        deadline = time.monotonic() + timeout_s
        ended = [source.join(max(0.0, deadline - time.monotonic())) for source in self._sources]
        return all(ended)
