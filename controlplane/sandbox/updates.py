"""The rules of updates: optimistic concurrency, and what only the server may change.

Source: apiserver `pkg/registry/rest/update.go`.
"""

from __future__ import annotations

from controlplane.sandbox.errors import Conflict
from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object, clone, meta, name_of


def check_version(kind: KindInfo, old: Object, new: Object) -> None:
    """Conflict when the sent resourceVersion or uid differs from the stored one."""
    given = meta(new).get("resourceVersion")
    if given and given != meta(old)["resourceVersion"]:
        raise Conflict.modified(kind, name_of(old))
    uid = meta(new).get("uid")
    if uid and uid != meta(old)["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
        raise Conflict.of(kind, name_of(old), why + meta(old)["uid"])


def kept_metadata(old: Object, new: Object, subresource: str | None) -> Object:
    """The new metadata with what only the server may change taken from the old."""
    if subresource == "status":
        metadata = clone(meta(old))
        if "managedFields" in meta(new):
            metadata["managedFields"] = meta(new)["managedFields"]
        return metadata
    metadata = meta(new)
    for key in (
        "namespace",
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "generateName",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ):
        if key in meta(old):
            metadata[key] = meta(old)[key]
        else:
            metadata.pop(key, None)
    if "managedFields" not in metadata and "managedFields" in meta(old):
        metadata["managedFields"] = clone(meta(old)["managedFields"])
    metadata.pop("selfLink", None)
    return metadata
