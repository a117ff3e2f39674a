"""Devices that several pods use, or that go by several names, are counted once."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.claims import claims_of
from controlplane.cluster.resources import NODES, PODS
from controlplane.engine.accounting import account
from tests.manifests import Manifest, make_container, make_node_object, make_pod_object
from tests.unit.cluster.test_translate import translated

GPU = "nvidia.com/gpu"
NEURON = "aws.amazon.com/neuron"
CORE = "aws.amazon.com/neuroncore"


def claimant(name: str, *claims: str, gpus: int = 2, more: int = 0, **fields: Any) -> Manifest:
    """A pod whose main container asks for accelerators through claims, and perhaps a second one
    that asks for more without."""
    main = make_container(gpus)
    main["resources"]["claims"] = [{"name": claim} for claim in claims]
    spec = {
        "containers": [main, *([make_container(more)] if more else [])],
        "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
    }
    return make_pod_object(name, spec=spec, **fields)


CASES: dict[str, tuple[list[Manifest], dict[str, int], int]] = {
    # pods -> what each is counted with, what the node shows as held
    "two pods share a claim (KAI 1930)": (
        [claimant("a", "c", node="main-00"), claimant("b", "c", node="main-00")],
        {"a": 2, "b": 0},
        2,
    ),
    "each has its own": (
        [claimant("a", "c", node="main-00"), claimant("b", "d", node="main-00")],
        {"a": 2, "b": 2},
        4,
    ),
    "what is asked for without the claim stays": (
        [claimant("a", "c", node="main-00"), claimant("b", "c", more=1, node="main-00")],
        {"a": 2, "b": 1},
        3,
    ),
    "one that waits shares what another holds": (
        [claimant("a", "c"), claimant("b", "c", node="main-00")],
        {"a": 0, "b": 2},
        2,
    ),
    "the one that stays keeps the devices": (
        [claimant("a", "c", node="main-00", deleting=True), claimant("b", "c", node="main-00")],
        {"a": 0, "b": 2},
        2,
    ),
    "one that has ended shares nothing": (
        [
            claimant("a", "c", node="main-00", phase="Succeeded"),
            claimant("b", "c", node="main-00"),
        ],
        {"a": 2, "b": 2},
        2,
    ),
    "three sharers": (
        [claimant(name, "c", node="main-00") for name in "abc"],
        {"a": 2, "b": 0, "c": 0},
        2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_devices_of_a_shared_claim(name: str) -> None:
    pods, want, held = CASES[name]
    for order in (pods, pods[::-1]):
        snapshot = translated({NODES: [make_node_object()], PODS: order}).snapshot
        assert {pod.name: pod.requests.get(GPU, 0) for pod in snapshot.pods} == want
        states = account(snapshot).totals[GPU]
        assert sum(n for state, n in states.items() if state in ("used", "terminating")) == held
        assert sum(states.values()) == 8


def test_claims_of_other_namespaces_are_others() -> None:
    pods = [claimant("a", "c", namespace="ml"), claimant("b", "c", namespace="serving")]
    seen = translated({PODS: pods}).snapshot.pods
    assert [pod.claims for pod in seen] == [("ml/c",), ("serving/c",)]
    assert [pod.requests[GPU] for pod in seen] == [2, 2]


def test_a_claim_from_a_template_is_known_once_it_was_made() -> None:
    pod = claimant("a", "gpus")
    pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "eight"}]
    assert claims_of(pod) == {}
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpus", "resourceClaimName": "a-gpus-x7"}]
    assert claims_of(pod) == {"gpus": "ml/a-gpus-x7"}


def neuron_node(name: str, devices: int, cores: int) -> Manifest:
    node = make_node_object(name, gpus=None)
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts.update({NEURON: str(devices), CORE: str(cores)})
        amounts["aws.amazon.com/neurondevice"] = str(devices)
    return node


def neuron_pod(name: str, resource: str, n: int, node: str | None) -> Manifest:
    return make_pod_object(
        name, spec={"containers": [make_container(n, resource=resource)]}, node=node
    )


TRN1 = neuron_node("trn1", 16, 32)
NEURON_CASES: dict[str, tuple[list[tuple[str, int, str | None]], list[int]]] = {
    # pods (resource, amount, node) -> devices of each
    "devices": ([(NEURON, 16, "trn1")], [16]),
    "devices under the older name": ([("aws.amazon.com/neurondevice", 4, "trn1")], [4]),
    "cores of whole devices": ([(CORE, 4, "trn1"), (CORE, 4, "trn1")], [2, 2]),
    "pods that share a device take it once": ([(CORE, 1, "trn1"), (CORE, 1, "trn1")], [1, 0]),
    "a begun device is a device": ([(CORE, 1, "trn1"), (CORE, 2, "trn1")], [1, 1]),
    "without a place a pod is rounded up by itself": ([(CORE, 1, None), (CORE, 1, None)], [1, 1]),
    "devices and cores of one node": ([(NEURON, 14, "trn1"), (CORE, 4, "trn1")], [14, 2]),
}


@pytest.mark.parametrize("name", NEURON_CASES)
def test_neuron_is_counted_in_whole_devices(name: str) -> None:
    asked, want = NEURON_CASES[name]
    pods = [neuron_pod(f"p{i}", *fields) for i, fields in enumerate(asked)]
    snapshot = translated({NODES: [TRN1], PODS: pods}).snapshot
    assert [pod.requests.get(NEURON, 0) for pod in snapshot.pods] == want
    assert all(CORE not in pod.requests for pod in snapshot.pods)
    assert sum(account(snapshot).totals[NEURON].values()) == 16


def test_all_cores_of_a_node_are_all_its_devices() -> None:
    pods = [neuron_pod(f"p{i:02}", CORE, 1, "trn1") for i in range(32)]
    assert account(translated({NODES: [TRN1], PODS: pods}).snapshot).totals == {
        NEURON: {"used": 16}
    }


def test_cores_stay_cores_where_no_node_shows_what_they_are_of() -> None:
    pods = [neuron_pod("p0", CORE, 4, None)]
    (pod,) = translated({NODES: [make_node_object()], PODS: pods}).snapshot.pods
    assert dict(pod.requests) == {CORE: 4}
