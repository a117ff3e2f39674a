"""Garbage collection: by ownerReferences, of ended pods, of pods whose node is gone.

Source: k8s.io/kubernetes `pkg/controller/{garbagecollector,podgc}`.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.controllers.pods import is_terminal, set_condition
from controlplane.sandbox.controllers.runner import run_controller
from controlplane.sandbox.kinds import KINDS, NODE, POD, KindInfo, kind_of
from controlplane.sandbox.objects import (
    Object,
    clone,
    finalizers_of,
    meta,
    name_of,
    namespace_of,
)
from controlplane.sandbox.store import Event, Store

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
ENDED_PODS_KEPT = 500  # terminated-pod-gc-threshold, sized for this machine
Key = tuple[str, str, str]  # kind, namespace, name; or ("ended pods", "", "")
_ENDED: Key = ("ended pods", "", "")


class Collector:
    """Follows every object; `sync` decides one."""

    def __init__(self, store: Store, clock: Clock, *, ended_kept: int = ENDED_PODS_KEPT) -> None:
        self._store = store
        self._clock = clock
        self._ended_kept = ended_kept
        self._uids: dict[str, Key] = {}
        self._dependents: dict[str, set[Key]] = {}
        for kind in KINDS:
            for obj in store.list(kind):
                self._add(kind, obj)

    def first(self) -> list[Key]:
        """Everything that there is at the start."""
        return [*self._uids.values(), _ENDED]

    def keys_of(self, event: Event) -> Iterable[Key]:
        """The object itself, and on a deletion its dependents and its owners."""
        key = _key(event.kind, event.object)
        uid = meta(event.object)["uid"]
        if event.type == "DELETED":
            self._uids.pop(uid, None)
            self._forget(key, event.object)
            owners = [self._uids.get(owner["uid"]) for owner in _owners(event.object)]
            keys = [*self._dependents.get(uid, ()), *filter(None, owners)]
            return keys + self._pods_on(event)
        keys: list[Key] = []
        if event.previous is not None and _owners(event.previous) != _owners(event.object):
            self._forget(key, event.previous)
            # an owner that waits for its dependents may have lost the last one
            owners = [self._uids.get(owner["uid"]) for owner in _owners(event.previous)]
            keys.extend(filter(None, owners))
        self._add(event.kind, event.object)
        if _owners(event.object) or finalizers_of(event.object):
            keys.append(key)
        if event.kind is POD and is_terminal(event.object):
            keys.append(_ENDED)
        return keys

    def sync(self, key: Key) -> None:
        """Delete an object without owners, finish a foreground or orphaning deletion."""
        if key == _ENDED:
            self._collect_ended()
            return
        kind = kind_of(key[0])
        obj = self._store.find(kind, key[1], key[2])
        if obj is None:
            return
        if kind is POD and self._collect_lost(obj):
            return
        if meta(obj).get("deletionTimestamp"):
            finalizers = finalizers_of(obj)
            if ORPHAN in finalizers:
                self._orphan(kind, obj)
            elif FOREGROUND in finalizers:
                self._foreground(kind, obj)
            return
        self._by_owners(kind, obj)

    # -- ownership -----------------------------------------------------------------------------

    def _judge(self, kind: KindInfo, obj: Object) -> None:
        """Delete what no owner keeps; take away references to owners that are gone."""
        owners, namespace = _owners(obj), namespace_of(obj)
        there = [owner for owner in owners if self._is_there(owner, namespace)]
        solid = [owner for owner in there if not self._waits_for_dependents(owner)]
        if not there:
            self._store.delete(kind, namespace, name_of(obj), propagation="Background")
        elif not solid:
            self._store.delete(kind, namespace, name_of(obj), propagation="Foreground")
        elif solid != owners:
            new = clone(obj)
            new["metadata"]["ownerReferences"] = solid
            self._store.update(kind, new)

    def _by_owners(self, kind: KindInfo, obj: Object) -> None:
        """Keep what an owner still holds, without the others' references; delete the rest."""
        owners = _owners(obj)
        waiting = [owner for owner in owners if self._waits_for_dependents(owner)]
        solid = [
            owner
            for owner in owners
            if owner not in waiting and self._is_there(owner, namespace_of(obj))
        ]
        if not owners or len(solid) == len(owners):
            return
        if solid:
            new = clone(obj)
            new["metadata"]["ownerReferences"] = clone(solid)
            self._store.update(kind, new)
            return
        how = "Background"
        if waiting and self._dependents.get(meta(obj)["uid"]):
            how = "Foreground"
        self._store.delete(kind, namespace_of(obj), name_of(obj), propagation=how)

    def _is_there(self, owner: Object, namespace: str) -> bool:
        key = self._uids.get(owner["uid"])
        return key is not None and key[1] in ("", namespace)

    def _owner(self, reference: Object) -> Object | None:
        key = self._uids.get(reference["uid"])
        return self._store.find(key[0], key[1], key[2]) if key else None

    def _waits_for_dependents(self, reference: Object) -> bool:
        owner = self._owner(reference)
        return (
            owner is not None
            and bool(meta(owner).get("deletionTimestamp"))
            and FOREGROUND in finalizers_of(owner)
        )

    def _orphan(self, kind: KindInfo, obj: Object) -> None:
        uid = meta(obj)["uid"]
        for key in list(self._dependents.get(uid, ())):
            dependent = self._store.find(key[0], key[1], key[2])
            if dependent is None:
                continue
            new = clone(dependent)
            left = [owner for owner in _owners(new) if owner["uid"] != uid]
            new["metadata"]["ownerReferences"] = left
            if not left:
                del new["metadata"]["ownerReferences"]
            self._store.update(key[0], new)
        self._finish(kind, obj, ORPHAN)

    def _foreground(self, kind: KindInfo, obj: Object) -> None:
        uid = meta(obj)["uid"]
        blocking = False
        for key in list(self._dependents.get(uid, ())):
            dependent = self._store.find(key[0], key[1], key[2])
            if dependent is None:
                continue
            references = [owner for owner in _owners(dependent) if owner["uid"] == uid]
            blocking = blocking or any(r.get("blockOwnerDeletion") for r in references)
            if not meta(dependent).get("deletionTimestamp"):
                self._by_owners(kind_of(key[0]), dependent)
        # what had no grace is gone by now
        if blocking and any(self._store.find(*key) for key in self._dependents.get(uid, ())):
            return
        self._finish(kind, obj, FOREGROUND)

    def _finish(self, kind: KindInfo, obj: Object, finalizer: str) -> None:
        current = self._store.find(kind, namespace_of(obj), name_of(obj))
        if current is None:
            return
        new = clone(current)
        new["metadata"]["finalizers"] = [f for f in finalizers_of(new) if f != finalizer]
        self._store.update(kind, new)

    # -- pods ----------------------------------------------------------------------------------

    def _pods_on(self, event: Event) -> list[Key]:
        """The pods of a node that is gone."""
        if event.kind is not NODE:
            return []
        name = name_of(event.object)
        pods = [pod for pod in self._store.list(POD) if pod["spec"].get("nodeName") == name]
        return [_key(POD, pod) for pod in pods]

    def _collect_lost(self, pod: Object) -> bool:
        """A pod whose node is gone fails and is deleted at once: no kubelet will end it."""
        node = pod["spec"].get("nodeName")
        if not node or self._store.find(NODE, None, node) is not None:
            return False
        if not is_terminal(pod):
            new = clone(pod)
            new["status"]["phase"] = "Failed"
            why = "PodGC: node no longer exists"
            set_condition(
                new["status"], "DisruptionTarget", "True", "DeletionByPodGC", why, self._clock.now()
            )
            self._store.update(POD, new, subresource="status")
        self._store.delete(POD, namespace_of(pod), name_of(pod), grace_seconds=0)
        return True

    def _collect_ended(self) -> None:
        """Keep the youngest ended pods."""
        ended = [pod for pod in self._store.list(POD) if is_terminal(pod)]
        ended.sort(key=lambda pod: (meta(pod)["creationTimestamp"], name_of(pod)))
        for pod in ended[: max(len(ended) - self._ended_kept, 0)]:
            if not meta(pod).get("deletionTimestamp"):
                self._store.delete(POD, namespace_of(pod), name_of(pod), grace_seconds=0)

    # -- index ---------------------------------------------------------------------------------

    def _add(self, kind: KindInfo, obj: Object) -> None:
        key = _key(kind, obj)
        self._uids[meta(obj)["uid"]] = key
        for owner in _owners(obj):
            self._dependents.setdefault(owner["uid"], set()).add(key)

    def _forget(self, key: Key, obj: Object) -> None:
        for owner in _owners(obj):
            group = self._dependents.get(owner["uid"])
            if group is not None:
                group.discard(key)
                if not group:
                    del self._dependents[owner["uid"]]


def _key(kind: KindInfo, obj: Object) -> Key:
    return (kind.kind, namespace_of(obj), name_of(obj))


def _owners(obj: Object) -> list[Object]:
    return list(meta(obj).get("ownerReferences") or ())


async def run(store: Store, clock: Clock) -> None:
    """Collect until cancelled."""
    collector = Collector(store, clock)
    await run_controller(
        store,
        clock,
        name="garbage",
        first=collector.first(),
        keys_of=collector.keys_of,
        sync=collector.sync,
    )
