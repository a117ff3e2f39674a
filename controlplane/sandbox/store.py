"""The sandbox's objects: versions, optimistic concurrency, graceful deletion, watches.

Everything runs in one asyncio loop and no method awaits, so each call is atomic. Objects that
come out are shared: copy (`objects.clone`) before changing one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.sandbox import admission, deletion, updates
from controlplane.sandbox.clock import Clock, SystemClock, rfc3339
from controlplane.sandbox.errors import AlreadyExists, Conflict, Expired, NotFound
from controlplane.sandbox.journal import Journal
from controlplane.sandbox.kinds import (
    BY_KIND,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    PRIORITYCLASS,
    KindInfo,
    kind_of,
)
from controlplane.sandbox.managed import record_change
from controlplane.sandbox.objects import (
    Object,
    clone,
    meta,
    name_of,
    namespace_of,
    new_uid,
    ordered,
    random_suffix,
    same,
)
from controlplane.sandbox.selectors import FieldSelector, LabelSelector
from controlplane.sandbox.watching import Event, History, Stored, Watch

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
FIRST_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(slots=True)
class Hooks:
    """What the node emulator offers to the HTTP server; None until it registers.

    `log_path(pod, container)` -> the container's log file, or None while there is none.
    `send_signal(pod, signal)` -> delivers e.g. "KILL"; raises ApiError when it can't.
    """

    log_path: Callable[[Object, str], Path | None] | None = None
    send_signal: Callable[[Object, str], None] | None = None


@dataclass(slots=True)
class _Watchers:
    by_kind: dict[str, dict[Watch, None]] = field(default_factory=dict)
    of_all: dict[Watch, None] = field(default_factory=dict)


class Store:
    """All objects of one sandbox cluster.

    Kinds are `KindInfo`s (or their names). Errors are those of `errors.py`: NotFound,
    AlreadyExists, Conflict, Invalid, Expired.
    """

    def __init__(
        self, *, clock: Clock | None = None, journal: Journal | None = None, history: int = 4096
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.hooks = Hooks()
        self.closing = False
        self._journal = journal
        self._objects: dict[str, dict[tuple[str, str], Stored]] = {k.kind: {} for k in KINDS}
        self._watchers = _Watchers()
        self._history = History(history)
        self._version = 1
        if journal is not None:
            self._load(journal)
        self._first_objects()
        self._history.begin(self._version)

    @property
    def resource_version(self) -> int:
        """The version of the last change, of whatever kind."""
        return self._version

    @property
    def compacted_version(self) -> int:
        """Nothing older than this version can be read (the start, or the last `expire`)."""
        return self._history.start

    # -- reads ---------------------------------------------------------------------------------

    def get(self, kind: KindInfo | str, namespace: str | None, name: str) -> Object:
        """One object; NotFound. `namespace` is ignored for kinds without one."""
        return self.stored(kind, namespace, name).obj

    def find(self, kind: KindInfo | str, namespace: str | None, name: str) -> Object | None:
        """One object, or None."""
        info = kind_of(kind)
        found = self._objects[info.kind].get(_key(info, namespace, name))
        return found.obj if found else None

    def stored(self, kind: KindInfo | str, namespace: str | None, name: str) -> Stored:
        """One object with its JSON; NotFound."""
        info = kind_of(kind)
        found = self._objects[info.kind].get(_key(info, namespace, name))
        if found is None:
            raise NotFound.of(info, name)
        return found

    def list(
        self,
        kind: KindInfo | str,
        namespace: str | None = None,
        *,
        labels: LabelSelector | None = None,
        fields: FieldSelector | None = None,
    ) -> list[Object]:
        """Objects in order of namespace and name; None for a selector selects all."""
        return [s.obj for s in self.list_stored(kind, namespace, labels=labels, fields=fields)]

    def list_stored(
        self,
        kind: KindInfo | str,
        namespace: str | None = None,
        *,
        labels: LabelSelector | None = None,
        fields: FieldSelector | None = None,
    ) -> list[Stored]:
        """As `list`, with each object's JSON."""
        objects = self._objects[kind_of(kind).kind]
        keys = sorted(key for key in objects if not namespace or key[0] == namespace)
        return [
            objects[key]
            for key in keys
            if (labels is None or labels.matches(meta(objects[key].obj).get("labels")))
            and (fields is None or fields.matches(objects[key].obj))
        ]

    def watch(
        self,
        kind: KindInfo | str | None = None,
        since: int | None = None,
        *,
        limit: int | None = None,
    ) -> Watch:
        """Changes of one kind (None: of all) after version `since` (None: from now on).

        Expired when `since` is older than the history. `limit`: see Watch.
        """
        info = None if kind is None else kind_of(kind)
        missed: Iterable[Event] = () if since is None else self._history.since(info, since)
        watchers = (
            self._watchers.of_all
            if info is None
            else self._watchers.by_kind.setdefault(info.kind, {})
        )
        watch = Watch(lambda closing: watchers.pop(closing, None) and None, limit)
        watchers[watch] = None
        for event in missed:
            watch.push(event)
        return watch

    # -- writes --------------------------------------------------------------------------------

    def create(self, kind: KindInfo | str, obj: Object, *, manager: str = "") -> Object:
        """Store a new object, defaulted and validated; AlreadyExists, Invalid, NotFound (its
        namespace). `manager` is recorded as the owner of its fields; "" records nothing."""
        return self.create_prepared(kind_of(kind), self.prepare_create(kind, obj, manager=manager))

    def prepare_create(self, kind: KindInfo | str, obj: Object, *, manager: str = "") -> Object:
        """What `create` would store, without storing it (dry run)."""
        info = kind_of(kind)
        new = clone(obj)
        metadata = new.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + random_suffix()
        for owned_by_server in ("resourceVersion", "deletionTimestamp", "generation", "selfLink"):
            metadata.pop(owned_by_server, None)
        metadata.pop("deletionGracePeriodSeconds", None)
        metadata["uid"] = new_uid()
        metadata["creationTimestamp"] = rfc3339(self.clock.now())
        if info.generation:
            metadata["generation"] = 1
        new["apiVersion"], new["kind"] = info.api_version, info.kind
        if info.has_status and info is not NODE:  # a kubelet registers its node with a status
            new.pop("status", None)
        new = admission.on_create(self, info, new)
        if self.find(info, namespace_of(new), name_of(new)) is not None:
            raise AlreadyExists.of(info, name_of(new))
        if manager:
            record_change(info, None, new, manager, None, self.clock.now())
        return new

    def create_prepared(self, kind: KindInfo, new: Object) -> Object:
        """Store what `prepare_create` returned, in the same turn of the loop."""
        return self._put("ADDED", kind, new, None)

    def update(
        self,
        kind: KindInfo | str,
        obj: Object,
        *,
        subresource: str | None = None,
        manager: str = "",
    ) -> Object:
        """Replace an object's spec and metadata, or with subresource="status" its status.

        Conflict when metadata.resourceVersion (or uid) is given and differs. A write that changes
        nothing returns the stored version. An object whose last finalizer goes is removed.
        """
        info = kind_of(kind)
        old = self.get(info, namespace_of(obj), name_of(obj))
        new = self.prepare_update(info, obj, subresource=subresource, manager=manager)
        return self.update_prepared(info, old, new)

    def prepare_update(
        self,
        kind: KindInfo,
        obj: Object,
        *,
        subresource: str | None = None,
        manager: str = "",
        managed: bool = True,
        recorded_as: str | None = None,
    ) -> Object:
        """What `update` would store. `managed=False`: managedFields are already right;
        `recorded_as`: the subresource that they name, where it isn't `subresource`."""
        old = self.get(kind, namespace_of(obj), name_of(obj))
        updates.check_version(kind, old, obj)
        new = clone(obj)
        new["metadata"] = updates.kept_metadata(old, new, subresource)
        new["apiVersion"], new["kind"] = kind.api_version, kind.kind
        if subresource == "status":
            new = {**clone(old), "status": new.get("status") or {}, "metadata": new["metadata"]}
        elif kind.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = clone(old["status"])
        new = admission.on_update(self, kind, old, new, subresource)
        if kind.generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = meta(old).get("generation", 0) + 1
        if manager and managed:
            how = recorded_as or subresource
            record_change(kind, old, new, manager, how, self.clock.now())
        return new

    def update_prepared(self, kind: KindInfo, old: Object, new: Object) -> Object:
        """Store what `prepare_update` returned, in the same turn of the loop."""
        if same(old, new):
            return old
        grace = meta(new).get("deletionGracePeriodSeconds") or 0
        if meta(new).get("deletionTimestamp") and not deletion.is_held(new) and not grace:
            return self._remove(kind, new)
        return self._put("MODIFIED", kind, new, old)

    def bind(self, namespace: str, name: str, node: str) -> Object:
        """Assign a pod to a node (the binding subresource): Conflict when it has one."""
        old = self.get(POD, namespace, name)
        if meta(old).get("deletionTimestamp"):
            raise Conflict.of(POD, name, "the pod is being deleted, it can't be assigned to a node")
        if old["spec"].get("nodeName"):
            assigned = old["spec"]["nodeName"]
            raise Conflict.of(POD, name, f'pod {name} is already assigned to node "{assigned}"')
        new = clone(old)
        new["spec"]["nodeName"] = node
        status = new.setdefault("status", {})
        kept = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        moment = rfc3339(self.clock.now())
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        status["conditions"] = [*kept, {**scheduled, "lastTransitionTime": moment}]
        return self._put("MODIFIED", POD, new, old)

    def delete(
        self,
        kind: KindInfo | str,
        namespace: str | None,
        name: str,
        *,
        grace_seconds: int | None = None,
        preconditions: Object | None = None,
        propagation: str | None = "Background",
    ) -> Object:
        """Delete, or begin to: NotFound, Conflict (preconditions: uid, resourceVersion).

        A bound, unfinished pod gets deletionTimestamp and stays until it is deleted with grace 0.
        `propagation` Foreground and Orphan add the finalizers that the garbage collector acts on
        (`foregroundDeletion`, `orphan`); None is the kind's default. Any finalizer keeps the
        object. A namespace stays, Terminating, until it is empty. Returns the last version.
        """
        info = kind_of(kind)
        old = self.get(info, namespace, name)
        deletion.check_preconditions(info, old, preconditions or {})
        new = clone(old)
        deletion.set_propagation(new, propagation or info.default_propagation)
        if info is NAMESPACE:
            new.setdefault("status", {})["phase"] = "Terminating"
        grace = deletion.grace_of(new, grace_seconds) if info is POD else 0
        deletion.mark(new, grace, self.clock.now())
        if not deletion.is_held(new) and grace == 0:
            return self._remove(info, new)
        if same(old, new):
            return old
        return self._put("MODIFIED", info, new, old)

    # -- for operation ---------------------------------------------------------------------------

    def expire(self, *, watches: bool = False) -> None:
        """Forget the history, as etcd's compaction does: older watches get 410 from now on.

        With `watches`, those that run get it too (fault injection).
        """
        self._history.begin(self._version)
        if watches:
            running = [*self._watchers.of_all]
            for group in self._watchers.by_kind.values():
                running.extend(group)
            for watch in running:
                watch.fail(Expired.version(self._version, self._version))

    def end_watches(self) -> None:
        """End every watch, so that a server can stop without waiting for its clients."""
        self.closing = True
        for group in [*self._watchers.by_kind.values(), self._watchers.of_all]:
            for watch in list(group):
                watch.close()

    def close(self) -> None:
        """Write the state to disk in full, end the watches."""
        self.end_watches()
        if self._journal is not None:
            self._compact()
            self._journal.close()
            self._journal = None

    # -- inside ----------------------------------------------------------------------------------

    def _load(self, journal: Journal) -> None:
        version, objects = journal.load()
        self._version = max(self._version, version)
        for (kind, namespace, name), obj in objects.items():
            if kind in BY_KIND:
                self._objects[kind][namespace, name] = Stored(obj)
        self._compact()

    def _first_objects(self) -> None:
        for name in FIRST_NAMESPACES:
            if self.find(NAMESPACE, None, name) is None:
                self.create(NAMESPACE, {"metadata": {"name": name}})
        for name, value in FIRST_PRIORITIES.items():
            if self.find(PRIORITYCLASS, None, name) is None:
                self.create(PRIORITYCLASS, {"metadata": {"name": name}, "value": value})

    def _put(self, change: str, kind: KindInfo, obj: Object, previous: Object | None) -> Object:
        self._version += 1
        obj = ordered(kind, obj)
        obj["metadata"]["resourceVersion"] = str(self._version)
        key = (namespace_of(obj) if kind.namespaced else "", name_of(obj))
        stored = Stored(obj)
        self._objects[kind.kind][key] = stored
        if self._journal is not None:
            self._journal.put((kind.kind, *key), self._version, stored.raw)
        self._announce(Event(change, kind, obj, self._version, previous, stored))
        return obj

    def _remove(self, kind: KindInfo, obj: Object) -> Object:
        self._version += 1
        obj = ordered(kind, obj)
        obj["metadata"]["resourceVersion"] = str(self._version)
        key = (namespace_of(obj) if kind.namespaced else "", name_of(obj))
        previous = self._objects[kind.kind].pop(key).obj
        if self._journal is not None:
            self._journal.remove((kind.kind, *key), self._version)
        self._announce(Event("DELETED", kind, obj, self._version, previous, Stored(obj)))
        return obj

    def _announce(self, event: Event) -> None:
        self._history.add(event)
        for watch in list(self._watchers.by_kind.get(event.kind.kind, ())):
            watch.push(event)
        for watch in list(self._watchers.of_all):
            watch.push(event)
        if self._journal is not None and self._journal.wants_compaction():
            self._compact()

    def _compact(self) -> None:
        assert self._journal is not None
        self._journal.compact(
            self._version,
            (
                ((kind, *key), stored.raw)
                for kind, objects in self._objects.items()
                for key, stored in objects.items()
            ),
        )


def _key(kind: KindInfo, namespace: str | None, name: str) -> tuple[str, str]:
    return (namespace or "" if kind.namespaced else "", name)


__all__: list[Any] = ["Event", "Hooks", "Store", "Watch"]
