"""What a pod asks for: Kubernetes' rule with sidecars, init containers, limits and overhead."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.podspec import effective_requests
from controlplane.cluster.quantities import parse, units
from controlplane.cluster.times import unix

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
