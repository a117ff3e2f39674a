"""What a pod asks for: Kubernetes' rule with sidecars, init containers, limits and overhead."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.podspec import effective_requests, node_affinity
from controlplane.cluster.quantities import parse, units
from controlplane.cluster.times import unix
from controlplane.engine.types import NodeAffinity, Requirement

GPU = "nvidia.com/gpu"


def container(*, sidecar: bool = False, limits: bool = False, **requests: str) -> dict[str, Any]:
    names = {name.replace("gpu", GPU): value for name, value in requests.items()}
    made: dict[str, Any] = {"resources": {"limits" if limits else "requests": names}}
    if sidecar:
        made["restartPolicy"] = "Always"
    return made


CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "containers add up": (
        {"containers": [container(gpu="2", cpu="500m"), container(gpu="1", cpu="1")]},
        {GPU: 3, "cpu": 1500},
    ),
    "a limit without a request is the request": (
        {"containers": [container(limits=True, gpu="8", memory="1Gi")]},
        {GPU: 8, "memory": 2**30},
    ),
    "an init container that is larger than the rest decides": (
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="4")]},
        {"cpu": 4000},
    ),
    "init containers run one after another": (
        {
            "containers": [container(cpu="1")],
            "initContainers": [container(cpu="3"), container(cpu="2")],
        },
        {"cpu": 3000},
    ),
    "a sidecar stays beside the containers": (
        {"containers": [container(cpu="1")], "initContainers": [container(sidecar=True, cpu="2")]},
        {"cpu": 3000},
    ),
    "an init container counts the sidecars started before it, not those after": (
        {
            "containers": [container(cpu="1")],
            "initContainers": [
                container(sidecar=True, cpu="1"),
                container(cpu="5"),
                container(sidecar=True, cpu="2"),
            ],
        },
        {"cpu": 6000},
    ),
    "overhead comes on top of whichever is larger": (
        {
            "containers": [container(cpu="1")],
            "initContainers": [container(cpu="4")],
            "overhead": {"cpu": "250m", "memory": "120Mi"},
        },
        {"cpu": 4250, "memory": 120 * 2**20},
    ),
    "each resource by its own maximum": (
        {"containers": [container(gpu="4")], "initContainers": [container(gpu="1", cpu="2")]},
        {GPU: 4, "cpu": 2000},
    ),
    "nothing asked is nothing": ({"containers": [{}]}, {}),
    "what the pod requests as a whole replaces the sum of its containers": (
        {
            "containers": [container(cpu="1", memory="1Gi", gpu="4"), container(cpu="2")],
            "resources": {"requests": {"cpu": "2"}},
        },
        {"cpu": 2000, "memory": 2**30, GPU: 4},
    ),
    "and the peak of its init containers": (
        {
            "containers": [container(cpu="1")],
            "initContainers": [container(cpu="8")],
            "resources": {"requests": {"cpu": "2"}},
        },
        {"cpu": 2000},
    ),
    "overhead comes on top of that too": (
        {
            "containers": [container(cpu="1")],
            "resources": {"requests": {"cpu": "2"}},
            "overhead": {"cpu": "500m"},
        },
        {"cpu": 2500},
    ),
    "a limit of the pod is its request where no container requests that": (
        {
            "containers": [container(cpu="1")],
            "resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
        },
        {"cpu": 1000, "memory": 2**31},
    ),
    "accelerators are never given for a pod as a whole": (
        {"containers": [container(gpu="4")], "resources": {"requests": {GPU: "8"}}},
        {GPU: 4},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_effective_requests(name: str) -> None:
    spec, want = CASES[name]
    assert effective_requests(spec) == want


@pytest.mark.parametrize(
    ("resource", "text", "want"),
    [
        ("cpu", "1", 1000),
        ("cpu", "100m", 100),
        ("cpu", "0.1", 100),
        ("cpu", "1u", 1),
        ("memory", "1Ki", 1024),
        ("memory", "1k", 1000),
        ("memory", "1.5Gi", 3 * 2**29),
        ("memory", "128974848", 128974848),
        ("memory", "129e6", 129_000_000),
        ("memory", "1E", 10**18),
        (GPU, "8", 8),
        (GPU, "0", 0),
    ],
)
def test_units(resource: str, text: str, want: int) -> None:
    assert units(resource, text) == want


@pytest.mark.parametrize("text", ["", "eight", "8 gpus", "1KiB", "--1", "1e", "0x8"])
def test_what_is_not_a_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00.250000Z", 60.25),
        (None, 0.0),
        ("soon", 0.0),
    ],
)
def test_unix(text: object, want: float) -> None:
    assert unix(text) == want


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
TYPED = {"key": "type", "operator": "Exists"}
NAMED = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
IN_ZONE = Requirement("zone", "In", ("a", "b"))
AFFINITIES: dict[str, tuple[dict[str, Any], NodeAffinity]] = {
    "none": ({}, ()),
    "preferred only": (
        {
            "affinity": {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
            }
        },
        (),
    ),
    "terms are alternatives, their expressions hold together": (
        affinity({"matchExpressions": [ZONE, TYPED]}, {"matchExpressions": [ZONE]}),
        ((IN_ZONE, Requirement("type", "Exists")), (IN_ZONE,)),
    ),
    "a node by its name": (
        affinity({"matchFields": [NAMED]}),
        ((Requirement("metadata.name", "In", ("n7",)),),),
    ),
    "a term without expressions matches nothing": (
        affinity({}, {"matchExpressions": [ZONE]}),
        ((IN_ZONE,),),
    ),
    "only such terms: no node will do": (
        affinity({}),
        ((Requirement("metadata.name", "In", ()),),),
    ),
}


@pytest.mark.parametrize("name", AFFINITIES)
def test_node_affinity(name: str) -> None:
    spec, want = AFFINITIES[name]
    assert node_affinity(spec) == want
