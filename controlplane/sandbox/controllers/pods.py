"""What controllers ask of a pod, and how they make one from a template.

Source: k8s.io/kubernetes `pkg/controller/controller_utils.go`, `pkg/api/v1/pod/util.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controlplane.sandbox.clock import rfc3339
from controlplane.sandbox.controllers.owned import controller_reference
from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object, clone, meta, namespace_of


def phase_of(pod: Object) -> str:
    """The pod's phase; Pending when it has none yet."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def is_terminal(pod: Object) -> bool:
    """Whether its containers have ended for good."""
    return phase_of(pod) in ("Succeeded", "Failed")


def is_deleting(pod: Object) -> bool:
    """Whether it has a deletionTimestamp."""
    return bool(meta(pod).get("deletionTimestamp"))


def is_active(pod: Object) -> bool:
    """Neither ended nor on its way out."""
    return not is_terminal(pod) and not is_deleting(pod)


def is_terminating(pod: Object) -> bool:
    """On its way out, and still running."""
    return is_deleting(pod) and not is_terminal(pod)


def condition_of(obj: Object, kind: str) -> Object | None:
    """One condition of an object's status, or None."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), None)


def is_true(obj: Object, kind: str) -> bool:
    """Whether a condition is there and True."""
    found = condition_of(obj, kind)
    return found is not None and found.get("status") == "True"


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition is True."""
    return is_true(pod, "Ready")


def set_condition(
    status: Object, kind: str, value: str, reason: str, message: str, now: float, **extra: Any
) -> None:
    """Set one condition; lastTransitionTime moves only when the status does."""
    conditions = status.setdefault("conditions", [])
    old = next((c for c in conditions if c.get("type") == kind), None)
    changed = old is None or old.get("status") != value
    moment = rfc3339(now) if changed else (old or {}).get("lastTransitionTime", rfc3339(now))
    new = {"type": kind, "status": value, **extra, "lastTransitionTime": moment}
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new


def restarts_of(pod: Object) -> int:
    """How often its containers were started again."""
    status = pod.get("status") or {}
    groups = ("initContainerStatuses", "containerStatuses")
    return sum(c.get("restartCount", 0) for group in groups for c in status.get(group) or ())


def from_template(kind: KindInfo, owner: Object, template: Object, *, prefix: str) -> Object:
    """A pod for `owner`; `prefix` is its generateName."""
    metadata = meta(template)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix,
            "namespace": namespace_of(owner),
            "labels": dict(metadata.get("labels") or {}),
            "annotations": dict(metadata.get("annotations") or {}),
            "finalizers": list(metadata.get("finalizers") or ()),
            "ownerReferences": [controller_reference(kind, owner)],
        },
        "spec": clone(template["spec"]),
    }


def leaving_first(pods: Iterable[Object], all_pods: Iterable[Object] = ()) -> list[Object]:
    """Pods in the order in which a controller that has too many deletes them.

    Unassigned, pending, not ready, lower `pod-deletion-cost`, more of the owner's pods on the
    same node, ready for a shorter time, more restarts, newer (ActivePodsWithRanks).
    """
    together: dict[str, int] = {}
    for pod in all_pods:
        node = pod["spec"].get("nodeName")
        if node and is_active(pod):
            together[node] = together.get(node, 0) + 1
    return sorted(pods, key=lambda pod: _leaving_key(pod, together))


def _leaving_key(pod: Object, together: dict[str, int]) -> tuple[Any, ...]:
    node = pod["spec"].get("nodeName") or ""
    ready = condition_of(pod, "Ready") if is_ready(pod) else None
    return (
        bool(node),
        {"Pending": 0, "Unknown": 1}.get(phase_of(pod), 2),
        ready is not None,
        deletion_cost(pod),
        -together.get(node, 0),
        _newest_first((ready or {}).get("lastTransitionTime") or ""),
        -restarts_of(pod),
        _newest_first(meta(pod).get("creationTimestamp") or ""),
        _newest_first(meta(pod).get("name") or ""),
    )


def deletion_cost(pod: Object) -> int:
    """`controller.kubernetes.io/pod-deletion-cost`; 0 when absent or not a number."""
    text = (meta(pod).get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost")
    try:
        return int(text or 0)
    except ValueError:
        return 0


def _newest_first(text: str) -> tuple[int, ...]:
    """A sort key that turns the order of texts of one form round."""
    return tuple(-ord(letter) for letter in text)
