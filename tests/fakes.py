"""A cluster in memory for unit tests of what talks to `Cluster`; never for anything else.

It keeps objects by resource, checks `metadata.resourceVersion` on a patch like an API server, and
fails on demand. Watches end when their events run out, as if the server had closed them.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from controlplane.cluster.interface import (
    ClusterError,
    Conflict,
    EventType,
    Manifest,
    NotFound,
    Page,
    PatchType,
    Resource,
    Verb,
    WatchEvent,
)

Step = WatchEvent | ClusterError


class FakeStream:
    """Plays its steps, then ends, or blocks until stopped when `hold` is set."""

    def __init__(self, steps: list[Step], hold: bool) -> None:
        self._steps = steps
        self._hold = hold
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[WatchEvent]:
        for step in self._steps:
            if self._stopped.is_set():
                return
            if isinstance(step, ClusterError):
                raise step
            yield step
        if self._hold:
            self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


class FakeCluster:
    """See the module. `calls` records (verb, object) of every request."""

    def __init__(self, name: str = "fake") -> None:
        self.name = name
        self.objects: dict[Resource, dict[tuple[str, str], Manifest]] = {}
        self.version = 1000
        self.calls: list[tuple[Verb, str]] = []
        self.failures: dict[Verb, deque[ClusterError]] = {}
        self.watches: dict[Resource, deque[list[Step]]] = {}
        self.before_patch: Callable[[], None] | None = None
        self.signals: list[tuple[str, str, str]] = []

    def put(self, resource: Resource, *manifests: Manifest) -> None:
        """Create or replace objects, each with a resourceVersion of its own."""
        for manifest in manifests:
            self.version += 1
            stored = copy.deepcopy(manifest)
            stored["metadata"]["resourceVersion"] = str(self.version)
            self.objects.setdefault(resource, {})[_key(stored)] = stored

    def fail(self, verb: Verb, *errors: ClusterError) -> None:
        """The next requests with this verb raise these."""
        self.failures.setdefault(verb, deque()).extend(errors)

    def script(self, resource: Resource, *watches: list[Step]) -> None:
        """What successive watches of a resource deliver; the last of all blocks until stopped."""
        self.watches.setdefault(resource, deque()).extend(watches)

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        limit: int = 500,
        continue_token: str = "",
    ) -> Page:
        self._enter(Verb.LIST, str(resource))
        everything = list(self.objects.get(resource, {}).values())
        start = int(continue_token or 0)
        rest = str(start + limit) if start + limit < len(everything) else ""
        items = copy.deepcopy(everything[start : start + limit])
        return Page(items, str(self.version), rest)

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_s: int = 240,
    ) -> FakeStream:
        self._enter(Verb.WATCH, f"{resource}@{resource_version}")
        scripted = self.watches.get(resource)
        if scripted:
            return FakeStream(scripted.popleft(), hold=not scripted)
        return FakeStream([], hold=True)

    def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        self._enter(Verb.GET, f"{resource} {namespace}/{name}")
        return copy.deepcopy(self._find(resource, namespace, name, Verb.GET))

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        patch_type: PatchType = PatchType.MERGE,
    ) -> Manifest:
        self._enter(Verb.PATCH, f"{resource} {namespace}/{name}")
        if self.before_patch is not None:
            self.before_patch()
        stored = self._find(resource, namespace, name, Verb.PATCH)
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted is not None and wanted != stored["metadata"]["resourceVersion"]:
            raise Conflict(self.name, Verb.PATCH, f"{namespace}/{name}", "the object was modified.")
        _merge(stored, body)
        self.version += 1
        stored["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(stored)

    def apply(self, resource: Resource, manifest: Manifest, *, force: bool = False) -> Manifest:
        self._enter(Verb.APPLY, f"{resource} {manifest['metadata']['name']}")
        self.put(resource, manifest)
        return copy.deepcopy(self.objects[resource][_key(manifest)])

    def signal_pod(self, namespace: str, name: str, signal: str) -> None:
        self._enter(Verb.SIGNAL, f"pods {namespace}/{name}")
        self.signals.append((namespace, name, signal))

    def close(self) -> None:
        return None

    def count(self, verb: Verb) -> int:
        """How many requests with this verb were made."""
        return sum(1 for made, _ in self.calls if made is verb)

    def _enter(self, verb: Verb, what: str) -> None:
        self.calls.append((verb, what))
        waiting = self.failures.get(verb)
        if waiting:
            raise waiting.popleft()

    def _find(self, resource: Resource, namespace: str | None, name: str, verb: Verb) -> Manifest:
        found = self.objects.get(resource, {}).get((namespace or "", name))
        if found is None:
            raise NotFound(self.name, verb, f"{namespace}/{name}", "not found.")
        return found


def event(type: str, manifest: Manifest, version: int) -> WatchEvent:
    """A watch event of an object at a version."""
    obj = copy.deepcopy(manifest)
    obj["metadata"]["resourceVersion"] = str(version)
    return WatchEvent(EventType(type), obj, str(version))


def _key(manifest: Manifest) -> tuple[str, str]:
    meta = manifest["metadata"]
    return str(meta.get("namespace") or ""), str(meta["name"])


def _merge(target: Manifest, patch: Manifest) -> None:
    """JSON merge patch (RFC 7386) in place, leaving resourceVersion to the caller."""
    for key, value in patch.items():
        if key == "resourceVersion":
            continue
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            inner = target.setdefault(key, {})
            _merge(inner, value)
        else:
            target[key] = value
