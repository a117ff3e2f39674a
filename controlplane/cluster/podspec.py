"""What a pod asks for: Kubernetes' own rule, once, for the planner and every page (KAI 1880)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.cluster.quantities import units
from controlplane.engine.types import NodeAffinity, Requirement, Toleration

Requests = dict[str, int]

#: resources that `spec.resources` may give, beside huge pages (SupportedPodLevelResources)
POD_LEVEL = ("cpu", "memory")
#: a requirement that no node meets
NOWHERE = Requirement("metadata.name", "In", ())


def effective_requests(spec: Mapping[str, Any]) -> Requests:
    """Units of each resource that the scheduler counts for a pod with this spec.

    The larger of (containers + sidecars) and, for every init container in order, (it + the
    sidecars started before it); what `spec.resources` says of the pod as a whole replaces that
    (KEP-2837); plus `overhead`. A sidecar is an init container with `restartPolicy: Always`
    (KEP-753). Source: k8s.io/component-helpers/resource, PodRequests, with the defaults that a
    server fills in (k8s.io/kubernetes/pkg/apis/core/v1, setDefaultPodRequests). A resize of a
    running pod in place (KEP-1287) changes cpu and memory only, and isn't looked at.
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
    total = {**total, **_pod_level(spec.get("resources") or {}, total)}
    return _sum((total, _parse(spec.get("overhead") or {})))


def _pod_level(resources: Mapping[str, Any], containers: Requests) -> Requests:
    """What the pod as a whole requests; its limit where neither it nor a container requests that
    resource. Accelerators are none of the resources that can be given for a pod as a whole."""
    limits = _parse(resources.get("limits") or {})
    missing = {name: n for name, n in limits.items() if name not in containers}
    wanted = {**missing, **_parse(resources.get("requests") or {})}
    return {
        name: n for name, n in wanted.items() if name in POD_LEVEL or name.startswith("hugepages-")
    }


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


def node_affinity(spec: Mapping[str, Any]) -> NodeAffinity:
    """Required node affinity; `metadata.name` stands for the field of that name (`matchFields`).

    A term without expressions matches no node (k8s.io/component-helpers nodeaffinity); where all
    are like that, one remains that says so.
    """
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return ()
    terms = (
        tuple(
            Requirement(
                key=str(item.get("key") or ""),
                operator=str(item.get("operator") or ""),
                values=tuple(str(value) for value in item.get("values") or ()),
            )
            for item in (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ()))
        )
        for term in required.get("nodeSelectorTerms") or ()
    )
    return tuple(term for term in terms if term) or ((NOWHERE,),)


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
