"""What a pod asks of a node, in whole units, and which pods ask the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from controlplane.sandbox.objects import Object
from controlplane.sandbox.schema import quantity

Amounts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Needs:
    """Pods with equal needs fit on the same nodes (an equivalence class).

    `requests`: (resource, amount) sorted by name; cpu in millicores, all else in units or bytes.
    `affinity`: the required node affinity's terms as JSON, "" for none.
    """

    requests: tuple[tuple[str, int], ...]
    tolerations: tuple[tuple[str, str, str, str], ...]
    node_selector: tuple[tuple[str, str], ...]
    affinity: str

    @property
    def accelerators(self) -> tuple[tuple[str, int], ...]:
        """The extended resources among the requests."""
        return tuple((name, amount) for name, amount in self.requests if is_extended(name))


def needs_of(spec: Object) -> Needs:
    """The needs of a pod by its spec; ValueError for a quantity that can't be read."""
    wanted = {name: amount for name, amount in effective_requests(spec).items() if amount}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    tolerations = [
        (
            item.get("key") or "",
            item.get("operator") or "Equal",
            item.get("value") or "",
            item.get("effect") or "",
        )
        for item in spec.get("tolerations") or ()
    ]
    return Needs(
        requests=tuple(sorted(wanted.items())),
        tolerations=tuple(tolerations),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity=json.dumps(required["nodeSelectorTerms"], sort_keys=True) if required else "",
    )


def effective_requests(spec: Mapping[str, Any]) -> Amounts:
    """max(containers + sidecars, each init container + the sidecars before it) + overhead.

    A sidecar is an init container with restartPolicy Always (KEP-753). Source:
    k8s.io/component-helpers/resource `PodRequests`.
    """
    running = _added(_amounts_of(c) for c in spec.get("containers") or ())
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        together = _added((sidecars, _amounts_of(container)))
        peak = {name: max(peak.get(name, 0), together.get(name, 0)) for name in peak | together}
        if container.get("restartPolicy") == "Always":
            sidecars = together
    steady = _added((running, sidecars))
    total = {name: max(peak.get(name, 0), steady.get(name, 0)) for name in peak | steady}
    return _added((total, amounts(spec.get("overhead") or {})))


def amounts(quantities: Mapping[str, Any]) -> Amounts:
    """A resource list in whole units, fractions rounded up."""
    return {name: _units(name, str(value)) for name, value in quantities.items()}


def is_extended(resource: str) -> bool:
    """Devices and the like: names with a domain that isn't kubernetes.io."""
    return "/" in resource and not resource.split("/")[0].endswith("kubernetes.io")


@lru_cache(maxsize=4096)
def _units(resource: str, text: str) -> int:
    value = quantity.parse(text) * (1000 if resource == "cpu" else 1)
    return int(value.to_integral_value(rounding="ROUND_CEILING"))


def _amounts_of(container: Mapping[str, Any]) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests") or {})


def _added(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total
