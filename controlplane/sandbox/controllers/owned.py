"""Objects by owner, kept current without a list of everything for each look."""

from __future__ import annotations

from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object, meta, name_of, namespace_of
from controlplane.sandbox.store import Store


def controller_of(obj: Object) -> Object | None:
    """The owner reference of the object's controller, if it has one."""
    owners = meta(obj).get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_reference(kind: KindInfo, owner: Object) -> Object:
    """What an object that `owner` controls carries in ownerReferences."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name_of(owner),
        "uid": meta(owner)["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Owned:
    """Objects of one kind by the uid of their controller.

    Every read first takes in the changes that wait, so it never lags behind the store.
    """

    def __init__(self, store: Store, kind: KindInfo) -> None:
        self._watch = store.watch(kind)
        self._by_owner: dict[str, dict[tuple[str, str], Object]] = {}
        for obj in store.list(kind):
            self._put(obj)

    def of(self, uid: str) -> list[Object]:
        """The objects that the owner with this uid controls, oldest first as they were seen."""
        for event in self._watch.drain():
            if event.type == "DELETED":
                self._drop(event.object)
            else:
                if event.previous is not None and _owner(event.previous) != _owner(event.object):
                    self._drop(event.previous)
                self._put(event.object)
        return list(self._by_owner.get(uid, {}).values())

    def close(self) -> None:
        """Stop following the store."""
        self._watch.close()

    def _put(self, obj: Object) -> None:
        if uid := _owner(obj):
            self._by_owner.setdefault(uid, {})[namespace_of(obj), name_of(obj)] = obj

    def _drop(self, obj: Object) -> None:
        uid = _owner(obj)
        group = self._by_owner.get(uid)
        if group is not None:
            group.pop((namespace_of(obj), name_of(obj)), None)
            if not group:
                del self._by_owner[uid]


def _owner(obj: Object) -> str:
    owner = controller_of(obj)
    return owner["uid"] if owner else ""
