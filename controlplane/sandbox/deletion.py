"""The rules of deletion: preconditions, propagation, grace.

Source: apiserver `pkg/registry/rest/delete.go` and `generic/registry/store.go`.
"""

from __future__ import annotations

from controlplane.sandbox.clock import parse_rfc3339, rfc3339
from controlplane.sandbox.errors import Conflict
from controlplane.sandbox.kinds import NAMESPACE, KindInfo
from controlplane.sandbox.objects import Object, finalizers_of, meta, name_of


def is_held(obj: Object) -> bool:
    """Whether finalizers (a namespace's are in its spec) keep the object."""
    in_spec = obj["kind"] == NAMESPACE.kind and (obj.get("spec") or {}).get("finalizers")
    return bool(finalizers_of(obj) or in_spec)


def check_preconditions(kind: KindInfo, old: Object, preconditions: Object) -> None:
    """Conflict unless uid and resourceVersion are those that the caller expects."""
    for key, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = preconditions.get(key)
        if wanted is not None and wanted != meta(old)[key]:
            why = f"{title} in precondition: {wanted}, {title} in object meta: {meta(old)[key]}"
            raise Conflict.of(kind, name_of(old), f"Precondition failed: {why}")


def set_propagation(obj: Object, propagation: str) -> None:
    """The finalizers of a DELETE's propagationPolicy (apiserver registry, `deletionFinalizers`)."""
    kept = [f for f in finalizers_of(obj) if f not in ("orphan", "foregroundDeletion")]
    added = {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"]}.get(propagation, [])
    finalizers = kept + added
    if finalizers:
        obj["metadata"]["finalizers"] = finalizers
    else:
        obj["metadata"].pop("finalizers", None)


def grace_of(pod: Object, requested: int | None) -> int:
    """Seconds that a pod gets to end (podStrategy.CheckGracefulDelete)."""
    spec = pod.get("spec") or {}
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if not spec.get("nodeName") or finished:
        return 0
    if requested is not None:
        return max(requested, 0)
    return int(spec.get("terminationGracePeriodSeconds", 30))


def mark(obj: Object, grace: int, now: float) -> None:
    """Set deletionTimestamp, or bring it forward; a deletion is never put off."""
    metadata = obj["metadata"]
    if metadata.get("deletionTimestamp"):
        before = metadata.get("deletionGracePeriodSeconds") or 0
        if grace >= before:
            return
        began = parse_rfc3339(metadata["deletionTimestamp"]) - before
        metadata["deletionTimestamp"] = rfc3339(began + grace)
    else:
        metadata["deletionTimestamp"] = rfc3339(now + grace)
        if metadata.get("generation"):
            metadata["generation"] += 1
    metadata["deletionGracePeriodSeconds"] = grace
