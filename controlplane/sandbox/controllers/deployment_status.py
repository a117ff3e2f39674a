"""A Deployment's status: sums over its ReplicaSets, Available and Progressing."""

from __future__ import annotations

import math
from collections.abc import Callable

from controlplane.sandbox.controllers.pods import set_condition
from controlplane.sandbox.kinds import DEPLOYMENT
from controlplane.sandbox.objects import Object, clone, meta, name_of
from controlplane.sandbox.store import Store


def write_status(
    store: Store, deployment: Object, replicasets: list[Object], template: str, now: float
) -> None:
    """Write it; `template` is the newest ReplicaSet's hash."""
    newest = [
        rs
        for rs in replicasets
        if (meta(rs).get("labels") or {}).get("pod-template-hash") == template
    ]
    wanted = deployment["spec"]["replicas"]
    total, available = _sum(replicasets, "replicas"), _sum(replicasets, "availableReplicas")
    counts = {
        "replicas": total,
        "updatedReplicas": _sum(newest, "replicas"),
        "readyReplicas": _sum(replicasets, "readyReplicas"),
        "availableReplicas": available,
        "terminatingReplicas": _sum(replicasets, "terminatingReplicas"),
        "unavailableReplicas": max(wanted - available, 0),
    }
    new = clone(deployment)
    status = new.setdefault("status", {})
    status["observedGeneration"] = meta(deployment)["generation"]
    for name, value in counts.items():
        if value:
            status[name] = value
        else:
            status.pop(name, None)
    _progressing(status, deployment, newest, counts, now)
    _available(status, deployment, available, now)
    store.update(DEPLOYMENT, new, subresource="status")


def _available(status: Object, deployment: Object, available: int, now: float) -> None:
    if available >= deployment["spec"]["replicas"] - max_unavailable(deployment):
        reason, why = "MinimumReplicasAvailable", "Deployment has minimum availability."
        set_condition(status, "Available", "True", reason, why, now)
    else:
        reason = "MinimumReplicasUnavailable"
        why = "Deployment does not have minimum availability."
        set_condition(status, "Available", "False", reason, why, now)


def _progressing(
    status: Object, deployment: Object, newest: list[Object], counts: dict[str, int], now: float
) -> None:
    name = name_of(newest[0]) if newest else ""
    wanted = deployment["spec"]["replicas"]
    done = (
        counts["updatedReplicas"] == wanted
        and counts["replicas"] == wanted
        and counts["availableReplicas"] == wanted
    )
    if done:
        reason, why = "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.'
    else:
        reason, why = "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.'
    known = next((c for c in status.get("conditions") or () if c["type"] == "Progressing"), None)
    scaling = known is not None and known.get("reason") == "NewReplicaSetAvailable"
    if scaling and not done and counts["updatedReplicas"] == counts["replicas"]:
        return  # a scale of a finished roll-out isn't progress
    set_condition(status, "Progressing", "True", reason, why, now)


def _sum(replicasets: list[Object], name: str) -> int:
    return sum(int((rs.get("status") or {}).get(name, 0)) for rs in replicasets)


def max_surge(deployment: Object) -> int:
    """Pods above `replicas` during a roll-out; percentages are rounded up."""
    return _share(deployment, "maxSurge", math.ceil)


def max_unavailable(deployment: Object) -> int:
    """Pods that may be missing during a roll-out; percentages are rounded down, and 1 when
    that and maxSurge both come to 0."""
    value = _share(deployment, "maxUnavailable", math.floor)
    return 1 if value == 0 and max_surge(deployment) == 0 else value


def _share(deployment: Object, name: str, rounded: Callable[[float], int]) -> int:
    value = (deployment["spec"]["strategy"].get("rollingUpdate") or {}).get(name, 0)
    if isinstance(value, int):
        return value
    return rounded(int(value.rstrip("%")) * deployment["spec"]["replicas"] / 100)
