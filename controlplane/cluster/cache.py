"""The newest state of one cluster, as its sources delivered it, and whether it is whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from controlplane.cluster.channels import Channel, channel_of
from controlplane.cluster.interface import (
    ClusterError,
    EventType,
    Manifest,
    Resource,
    WatchEvent,
    metadata,
)

Key = tuple[str, str]  # namespace ("" for cluster-wide objects), name


@dataclass(slots=True)
class SourceState:
    """How far one resource can be trusted. `heard_at` is unix seconds; None: never listed."""

    heard_at: float | None = None
    error: ClusterError | None = None

    @property
    def synced(self) -> bool:
        return self.heard_at is not None and self.error is None


@dataclass(frozen=True, slots=True)
class CacheView:
    """What the cache held at one moment. The manifests are shared: read only.

    `complete`: every source has listed and none is lost. `missing` names those that aren't, with
    the reason. `version` rises with every change.
    """

    taken_at: float
    version: int
    complete: bool
    missing: Mapping[str, str]
    objects: Mapping[Resource, tuple[Manifest, ...]]

    def of(self, resource: Resource) -> tuple[Manifest, ...]:
        return self.objects.get(resource, ())


class ClusterCache:
    """Implements `watch.Sink`; thread-safe. `on_wake` is called, without the lock held, for every
    change that a plan could tell from the state before it, and when completeness changes."""

    def __init__(
        self,
        resources: Iterable[Resource],
        on_wake: Callable[[Channel], None],
        *,
        on_lost: Callable[[Resource, ClusterError], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._objects: dict[Resource, dict[Key, Manifest]] = {r: {} for r in resources}
        self._sources = {r: SourceState() for r in self._objects}
        self._on_wake = on_wake
        self._on_lost = on_lost
        self._clock = clock
        self._version = 0
        self._lock = threading.Lock()

    def replace(self, resource: Resource, items: list[Manifest]) -> None:
        """A whole list (the first, or after 410): objects that aren't in it are gone."""
        fresh = {_key(item): item for item in items}
        with self._lock:
            before = self._objects[resource]
            woken = {
                channel_of(resource, before.get(key), fresh.get(key))
                for key in {*before, *fresh}
                if before.get(key) is not fresh.get(key)
            }
            self._objects[resource] = fresh
            self._version += 1
        self._wake(woken)

    def apply(self, resource: Resource, event: WatchEvent) -> None:
        """One event. A DELETED for an object that was created again since changes nothing."""
        key = _key(event.object)
        with self._lock:
            objects = self._objects[resource]
            before = objects.get(key)
            after: Manifest | None = event.object
            if event.type is EventType.DELETED:
                if before is None or _uid(before) != _uid(event.object):
                    return
                after = None
                del objects[key]
            else:
                event.object.setdefault("apiVersion", resource.api_version)
                event.object.setdefault("kind", resource.kind)
                objects[key] = event.object
            self._heard(resource)
            self._version += 1
        self._wake({channel_of(resource, before, after)})

    def alive(self, resource: Resource) -> None:
        """The source's watch is open. Wakes the loop when the cache has just become complete."""
        with self._lock:
            before = self._complete()
            self._heard(resource)
            now_complete = self._complete() and not before
        if now_complete:
            self._wake({Channel.SCHEDULER})

    def lost(self, resource: Resource, error: ClusterError) -> None:
        """The source can't be trusted until `alive`; what it held stays, with its age."""
        with self._lock:
            self._sources[resource].error = error
        if self._on_lost is not None:
            self._on_lost(resource, error)

    def view(self) -> CacheView:
        with self._lock:
            return CacheView(
                taken_at=self._clock(),
                version=self._version,
                complete=self._complete(),
                missing={
                    str(resource): str(state.error) if state.error else "not listed yet"
                    for resource, state in self._sources.items()
                    if not state.synced
                },
                objects={r: tuple(objects.values()) for r, objects in self._objects.items()},
            )

    def _complete(self) -> bool:
        return all(state.synced for state in self._sources.values())

    def _heard(self, resource: Resource) -> None:
        state = self._sources[resource]
        state.heard_at = self._clock()
        state.error = None

    def _wake(self, channels: Iterable[Channel | None]) -> None:
        for channel in {c for c in channels if c is not None}:
            self._on_wake(channel)


def _key(obj: Manifest) -> Key:
    meta = metadata(obj)
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _uid(obj: Manifest) -> str:
    return str(metadata(obj).get("uid") or "")
