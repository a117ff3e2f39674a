"""Nodes that have been announced to leave, by the signs of the clouds and of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster import names
from controlplane.cluster.departures import departure_of
from controlplane.engine.snapshot import Departure
from tests.manifests import Manifest, make_node_object

AT = 1_796_083_200.0  # 2026-12-01T00:00:00Z


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Manifest:
    return {"key": key, "value": value, "effect": effect}


def noted(text: str) -> dict[str, Any]:
    return {"annotations": {names.MAINTENANCE_AT: text}}


def tainted(*found: Manifest) -> dict[str, Any]:
    return {"taints": list(found)}


CASES: dict[str, tuple[dict[str, Any], Departure | None]] = {
    "nothing was said": ({}, None),
    "a taint of somebody else": (tainted(taint("dedicated", "ml")), None),
    "spot interruption on AWS": (
        tainted(taint("aws-node-termination-handler/spot-itn", "i-0abc")),
        Departure("interruption", None, "taint aws-node-termination-handler/spot-itn"),
    ),
    "scheduled maintenance on AWS": (
        tainted(taint("aws-node-termination-handler/scheduled-maintenance")),
        Departure("maintenance", None, "taint aws-node-termination-handler/scheduled-maintenance"),
    ),
    "Karpenter since v1": (
        tainted(taint("karpenter.sh/disrupted")),
        Departure("drain", None, "taint karpenter.sh/disrupted"),
    ),
    "Karpenter before v1": (
        tainted(taint("karpenter.sh/disruption", "disrupting")),
        Departure("drain", None, "taint karpenter.sh/disruption"),
    ),
    "Karpenter's key with another value": (
        tainted(taint("karpenter.sh/disruption", "candidate")),
        None,
    ),
    "GKE stops the node": (
        tainted(taint("cloud.google.com/impending-node-termination")),
        Departure("interruption", None, "taint cloud.google.com/impending-node-termination"),
    ),
    "GKE stops its pods": (
        {"labels": {"cloud.google.com/active-node-maintenance": "ONGOING"}},
        Departure("maintenance", None, "label cloud.google.com/active-node-maintenance"),
    ),
    "GKE has scheduled maintenance": (
        {"labels": {"cloud.google.com/scheduled-maintenance-time": "1796083200"}},
        Departure("maintenance", AT, "label cloud.google.com/scheduled-maintenance-time"),
    ),
    "AKS drains it": (
        tainted(taint("remediator.kubernetes.azure.com/unschedulable")),
        Departure("interruption", None, "taint remediator.kubernetes.azure.com/unschedulable"),
    ),
    "a spot node of AKS that stays": (
        tainted(taint("kubernetes.azure.com/scalesetpriority", "spot")),
        None,
    ),
    "the autoscaler removes it": (
        tainted(taint("ToBeDeletedByClusterAutoscaler", "1796083200")),
        Departure("drain", None, "taint ToBeDeletedByClusterAutoscaler"),
    ),
    "the autoscaler would, if it stays empty": (
        tainted(taint("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule")),
        None,
    ),
    "out of service": (
        tainted(taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")),
        Departure("drain", None, "taint node.kubernetes.io/out-of-service"),
    ),
    "HyperPod replaces it": (
        {"labels": {"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReboot"}},
        Departure("drain", None, "label sagemaker.amazonaws.com/node-health-status"),
    ),
    "a healthy node of HyperPod": (
        {"labels": {"sagemaker.amazonaws.com/node-health-status": "Schedulable"}},
        None,
    ),
    "the Node object is being deleted": (
        {"deletionTimestamp": "2026-12-01T00:00:00Z"},
        Departure("drain", None, "its deletion"),
    ),
    "our annotation": (
        noted("2026-12-01T00:00:00Z"),
        Departure("maintenance", AT, "annotation concertina.dev/maintenance-at"),
    ),
    "our annotation in another time zone": (
        noted("2026-12-01T01:30:00+01:30"),
        Departure("maintenance", AT, "annotation concertina.dev/maintenance-at"),
    ),
    "an annotation without a time zone may mean any moment": (
        noted("2026-12-01T00:00:00"),
        Departure(
            "maintenance",
            None,
            "annotation concertina.dev/maintenance-at ('2026-12-01T00:00:00' is no RFC 3339 time)",
        ),
    ),
    "an annotation that is no time": (
        noted("next week"),
        Departure(
            "maintenance",
            None,
            "annotation concertina.dev/maintenance-at ('next week' is no RFC 3339 time)",
        ),
    ),
    "the earliest of several counts": (
        {
            "labels": {"cloud.google.com/scheduled-maintenance-time": "1796083200"},
            **noted("2026-12-02T00:00:00Z"),
        },
        Departure("maintenance", AT, "label cloud.google.com/scheduled-maintenance-time"),
    ),
    "one without a time comes before all others": (
        {
            **tainted(taint("aws-node-termination-handler/spot-itn")),
            **noted("1999-01-01T00:00:00Z"),
        },
        Departure("interruption", None, "taint aws-node-termination-handler/spot-itn"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_departures(name: str) -> None:
    fields, want = CASES[name]
    assert departure_of(make_node_object(**fields)) == want


def test_every_sign_is_known_by_its_own_name() -> None:
    for sign in names.DEPARTURE_TAINTS:
        found = departure_of(make_node_object(taints=[taint(sign.key, sign.value)]))
        assert found == Departure(sign.kind, None, f"taint {sign.key}")
    for sign in names.DEPARTURE_LABELS:
        found = departure_of(make_node_object(labels={sign.key: sign.value}))
        assert found == Departure(sign.kind, None, f"label {sign.key}")
