"""Nodes as the engine sees them: which accelerators they have, and how many are still to come."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster import names
from controlplane.cluster.nodes import neuron_ratios, nodes_from
from controlplane.engine.snapshot import Node
from tests.manifests import Manifest, make_node_object

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.5gb"
NEURON = "aws.amazon.com/neuron"


def offering(name: str = "n0", *, gives: dict[str, int] | None = None, **fields: Any) -> Manifest:
    """A node with exactly these extended resources."""
    node = make_node_object(name, gpus=None, **fields)
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts.update({resource: str(n) for resource, n in (gives or {}).items()})
    return node


def node_of(*manifests: Manifest) -> Node:
    return nodes_from(manifests)[0]


def devices(amounts: Any) -> dict[str, int]:
    return {name: n for name, n in amounts.items() if name not in ("cpu", "memory")}


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        (GPU, True),
        ("nvidia.com/gpu.shared", True),
        (MIG, True),
        ("nvidia.com/mig-3g.40gb.me", True),
        ("nvidia.com/gpumem", False),
        ("amd.com/gpu", True),
        ("amd.com/cpx_nps4", True),
        (NEURON, True),
        ("google.com/tpu", True),
        ("habana.ai/gaudi", True),
        ("gpu.intel.com/i915", True),
        ("gpu.intel.com/xe", True),
        ("gpu.intel.com/i915_monitoring", False),
        ("vpc.amazonaws.com/efa", False),
        ("rdma/hca_shared_devices", False),
        ("cpu", False),
        ("hugepages-2Mi", False),
    ],
)
def test_what_counts_as_an_accelerator(resource: str, want: bool) -> None:
    assert names.is_accelerator(resource) is want
    assert devices(node_of(offering(gives={resource: 4})).capacity) == (
        {resource: 4} if want else {}
    )


MIXED = {
    "nvidia.com/gpu.count": "8",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig-1g.5gb.count": "56",
}
ONCE: dict[str, tuple[dict[str, Any], dict[str, int], dict[str, int]]] = {
    # gives and labels -> capacity, what is still expected
    "MIG, mixed: slices only (KAI 422)": (
        {"gives": {GPU: 0, MIG: 56}, "labels": MIXED},
        {MIG: 56},
        {},
    ),
    "MIG, mixed, two devices left whole": (
        {"gives": {GPU: 2, MIG: 42}, "labels": MIXED},
        {GPU: 2, MIG: 42},
        {},
    ),
    "MIG, mixed, before the device plugin is up": ({"labels": MIXED}, {}, {MIG: 56}),
    "MIG, single: slices under the name of whole devices": (
        {
            "gives": {GPU: 56},
            "labels": {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.count": "56"},
        },
        {GPU: 56},
        {},
    ),
    "time-slicing, renamed": (
        {"gives": {GPU: 0, "nvidia.com/gpu.shared": 32}, "labels": {"nvidia.com/gpu.count": "8"}},
        {"nvidia.com/gpu.shared": 32},
        {},
    ),
    "time-slicing under the name of whole devices": (
        {"gives": {GPU: 32}, "labels": {"nvidia.com/gpu.count": "8"}},
        {GPU: 32},
        {},
    ),
    "Neuron devices under three names": (
        {"gives": {NEURON: 16, "aws.amazon.com/neurondevice": 16, "aws.amazon.com/neuroncore": 32}},
        {NEURON: 16},
        {},
    ),
    "Neuron devices under their older name": (
        {"gives": {"aws.amazon.com/neurondevice": 16}},
        {NEURON: 16},
        {},
    ),
    "Neuron cores alone": (
        {"gives": {"aws.amazon.com/neuroncore": 32}},
        {"aws.amazon.com/neuroncore": 32},
        {},
    ),
    "two vendors": (
        {"gives": {"gpu.intel.com/i915": 1}, "labels": {"nvidia.com/gpu.count": "8"}},
        {"gpu.intel.com/i915": 1},
        {GPU: 8},
    ),
    "a TPU node": (
        {
            "labels": {
                "cloud.google.com/gke-accelerator-count": "4",
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
            }
        },
        {},
        {"google.com/tpu": 4},
    ),
    "a GPU node of GKE": (
        {
            "labels": {
                "cloud.google.com/gke-accelerator-count": "8",
                "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
            }
        },
        {},
        {GPU: 8},
    ),
    "a GPU node of Karpenter, by its manufacturer": (
        {
            "labels": {
                "karpenter.k8s.aws/instance-gpu-count": "4",
                "karpenter.k8s.aws/instance-gpu-manufacturer": "amd",
            }
        },
        {},
        {"amd.com/gpu": 4},
    ),
    "a number too long to be one": ({"labels": {"nvidia.com/gpu.count": "9" * 5000}}, {}, {}),
}


@pytest.mark.parametrize("name", ONCE)
def test_each_device_is_counted_once(name: str) -> None:
    fields, capacity, expects = ONCE[name]
    seen = node_of(offering(**fields))
    assert devices(seen.capacity) == capacity
    assert devices(seen.allocatable) == capacity
    assert dict(seen.expects) == expects


def test_a_pool_promises_what_most_of_its_nodes_have_not_a_mixture() -> None:
    whole = [offering(f"w{i}", gives={GPU: 8}) for i in range(3)]
    cut = [offering(f"x{i}", gives={MIG: 56}) for i in range(2)]
    assert dict(node_of(offering("a"), *whole, *cut).expects) == {GPU: 8}


def test_labels_of_a_node_say_more_than_its_pool() -> None:
    pool = {"concertina.dev/pool": "main"}
    whole = [offering(f"w{i}", gives={GPU: 8}, labels=pool) for i in range(3)]
    assert dict(node_of(offering("a", labels={**pool, **MIXED}), *whole).expects) == {MIG: 56}


def test_pool_promises_do_not_depend_on_the_order_of_arrival() -> None:
    nodes = [offering("a"), offering("b", gives={GPU: 4}), offering("c", gives={GPU: 8})]
    assert nodes_from(nodes) == nodes_from(nodes[::-1])


def test_cores_of_a_neuron_device() -> None:
    cores = "aws.amazon.com/neuroncore"
    nodes = [
        offering("trn1", gives={NEURON: 16, cores: 32}),
        offering("trn2", gives={NEURON: 16, cores: 128}),
        offering("cores", gives={cores: 8}),
        offering("gpu", gives={GPU: 8}),
    ]
    assert neuron_ratios(nodes) == {"trn1": 2, "trn2": 8}


def with_ready(status: str, at: str | None = None, **fields: Any) -> Manifest:
    node = make_node_object(**fields)
    condition = {"type": "Ready", "status": status}
    node["status"]["conditions"] = [condition | ({"lastTransitionTime": at} if at else {})]
    return node


@pytest.mark.parametrize(
    ("node", "ready", "since"),
    [
        (with_ready("True", "2026-12-01T00:10:00Z"), True, None),
        (with_ready("False", "2026-12-01T00:10:00Z"), False, 1_796_083_800.0),
        (with_ready("Unknown", "2026-12-01T00:10:00Z"), False, 1_796_083_800.0),
        (
            with_ready(
                "Unknown",
                taints=[
                    {
                        "key": names.UNREACHABLE,
                        "effect": "NoExecute",
                        "timeAdded": "2026-12-01T00:10:00Z",
                    }
                ],
            ),
            False,
            1_796_083_800.0,
        ),
        (with_ready("False"), False, 1_796_083_200.0),  # since it came
    ],
)
def test_since_when_a_node_is_not_ready(node: Manifest, ready: bool, since: float | None) -> None:
    seen = node_of(node)
    assert (seen.ready, seen.not_ready_since) == (ready, since)
