"""What a pod asks for: Kubernetes' own rule, once, for the planner and every page (KAI 1880)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.cluster.quantities import units
from controlplane.engine.types import Toleration

Requests = dict[str, int]


def effective_requests(spec: Mapping[str, Any]) -> Requests:
    """Units of each resource that the scheduler counts for a pod with this spec.

    The larger of (containers + sidecars) and, for every init container in order, (it + the
    sidecars started before it); plus `overhead`. A sidecar is an init container with
    `restartPolicy: Always` (KEP-753). Source: k8s.io/component-helpers/resource, PodRequests.
    Raises ValueError for a quantity that isn't one.
    """
    running = _sum(container_requests(c) for c in spec.get("containers") or ())
    sidecars: Requests = {}
    peak: Requests = {}
    for container in spec.get("initContainers") or ():
        wanted = container_requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, wanted))
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _sum((sidecars, wanted)))
    total = _max(_sum((running, sidecars)), peak)
    return _sum((total, _parse(spec.get("overhead") or {})))


def container_requests(container: Mapping[str, Any]) -> Requests:
    """One container's requests; a limit without a request is the request, as on a real server."""
    resources = container.get("resources") or {}
    return _parse({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def tolerations(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """The pod's tolerations, in its order."""
    return tuple(
        Toleration(
            key=str(item.get("key") or ""),
            operator=str(item.get("operator") or "Equal"),
            value=str(item.get("value") or ""),
            effect=str(item.get("effect") or ""),
        )
        for item in spec.get("tolerations") or ()
    )


def _parse(quantities: Mapping[str, Any]) -> Requests:
    return {name: units(name, str(value)) for name, value in quantities.items()}


def _sum(parts: Iterable[Requests]) -> Requests:
    total: Requests = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _max(left: Requests, right: Requests) -> Requests:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
