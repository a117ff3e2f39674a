"""The namespace controller: empties a namespace that is being deleted, then lets it go."""

from __future__ import annotations

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.kinds import KINDS, NAMESPACE
from controlplane.sandbox.objects import clone, meta, name_of
from controlplane.sandbox.store import Store


async def run(store: Store, clock: Clock) -> None:
    """Watch everything: a deletion in a terminating namespace may have been its last."""
    watch = store.watch()
    try:
        for namespace in store.list(NAMESPACE):
            advance(store, name_of(namespace))
        async for event in watch:
            if event.kind is NAMESPACE:
                advance(store, name_of(event.object))
            elif event.type == "DELETED" and event.kind.namespaced:
                advance(store, meta(event.object)["namespace"])
    finally:
        watch.close()


def advance(store: Store, name: str) -> None:
    """Delete what a terminating namespace holds; finalize it once it holds nothing."""
    namespace = store.find(NAMESPACE, None, name)
    if namespace is None or not meta(namespace).get("deletionTimestamp"):
        return
    left = [(kind, obj) for kind in KINDS if kind.namespaced for obj in store.list(kind, name)]
    for kind, obj in left:
        if not meta(obj).get("deletionTimestamp"):
            store.delete(kind, name, name_of(obj), propagation="Background")
    if any(store.list(kind, name) for kind in KINDS if kind.namespaced):
        return
    if (namespace.get("spec") or {}).get("finalizers"):
        done = clone(namespace)
        done["spec"]["finalizers"] = []
        store.update(NAMESPACE, done, subresource="finalize")
