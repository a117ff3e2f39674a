"""Resource claims (Dynamic Resource Allocation, KEP-4381): whose they are, and their devices once.

What a claim allocates is written in the ResourceClaim, which we don't watch. What pods themselves
tell is which claims they use, and what the containers that use one ask for beside it. So the rule
is: accelerators that a container asks for and that names a claim are that claim's devices. Pods
that share a claim share them: they are counted in one of the pods only (KAI 1930).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.cluster.interface import Manifest, metadata
from controlplane.cluster.names import is_accelerator
from controlplane.cluster.podspec import Requests, container_requests
from controlplane.engine.snapshot import Pod
from controlplane.engine.types import PodPhase

_ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


def claims_of(pod: Manifest) -> dict[str, str]:
    """The pod's own word for each of its claims -> "namespace/name" of the ResourceClaim. One that
    is still to be made from a template has no name, and is left out: nobody shares it."""
    spec = pod.get("spec") or {}
    if not spec.get("resourceClaims"):
        return {}
    namespace = str(metadata(pod).get("namespace") or "")
    made = {
        str(status.get("name")): status.get("resourceClaimName")
        for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    found = {}
    for claim in spec["resourceClaims"]:
        word = str(claim.get("name"))
        name = claim.get("resourceClaimName") or made.get(word)
        if name:
            found[word] = f"{namespace}/{name}"
    return found


def counted_once(pods: Iterable[Pod], manifests: Mapping[str, Manifest]) -> list[Pod]:
    """The pods with the devices of shared claims in the requests of one pod each: of those that
    hold a place before those that wait, of those that stay before those that leave, the first by
    name. `manifests`: uid -> Pod object, of the pods that have claims."""
    found = list(pods)
    sharers: dict[str, list[int]] = {}
    for i, pod in enumerate(found):
        if pod.phase not in _ENDED:
            for claim in pod.claims:
                sharers.setdefault(claim, []).append(i)
    for claim, users in sharers.items():
        for i in sorted(users, key=lambda at: _counts_before(found[at]))[1:]:
            spare = _devices(manifests[found[i].uid], claim)
            left = {name: n - spare.get(name, 0) for name, n in found[i].requests.items()}
            requests = {name: n for name, n in left.items() if n > 0}
            found[i] = dataclasses.replace(found[i], requests=requests)
    return found


def _counts_before(pod: Pod) -> tuple[bool, bool, str, str]:
    return pod.node is None, pod.deleting, pod.name, pod.uid


def _devices(pod: Manifest, claim: str) -> Requests:
    """Accelerators that the pod's containers ask for through a claim. A container that names
    several claims asks through the first."""
    words, total = claims_of(pod), dict[str, int]()
    for container in _running(pod.get("spec") or {}):
        named = ((container.get("resources") or {}).get("claims")) or ()
        first = next((words[c["name"]] for c in named if c.get("name") in words), None)
        if first == claim:
            for name, n in container_requests(container).items():
                if is_accelerator(name):
                    total[name] = total.get(name, 0) + n
    return total


def _running(spec: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Containers that run side by side: sidecars among the init containers too."""
    yield from spec.get("containers") or ()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield container
