"""The cache holds the newest state, knows when it is whole, and wakes only for what matters."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controlplane.cluster.cache import ClusterCache
from controlplane.cluster.channels import Channel, channel_of
from controlplane.cluster.interface import Manifest, Resource, Unreachable, Verb
from controlplane.cluster.resources import JOBS, NODES, PODS, PRIORITY_CLASSES, WATCHED
from tests.fakes import event
from tests.manifests import (
    make_job_object,
    make_node_object,
    make_pod_object,
    make_priority_class_object,
)


def changed(manifest: Manifest, path: str, value: Any) -> Manifest:
    """A copy with one field, named by a dotted path, set to a value."""
    out = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    target: Any = out
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
    target[last] = value
    return out


POD = make_pod_object("p", node="main-00")
WAITING = make_pod_object("p")
NODE = make_node_object()
JOB = make_job_object()
CLASS = make_priority_class_object("high", 1000)

CHANGES: dict[str, tuple[Resource, Manifest | None, Manifest | None, Channel | None]] = {
    "pod appears, waiting": (PODS, None, WAITING, Channel.SCHEDULER),
    "pod appears, bound": (PODS, None, POD, Channel.PODS),
    "pod is bound": (PODS, WAITING, changed(WAITING, "spec.nodeName", "main-00"), Channel.PODS),
    "pod becomes ready": (
        PODS,
        changed(POD, "status.conditions", [{"type": "Ready", "status": "False"}]),
        POD,
        Channel.PODS,
    ),
    "pod is being deleted": (
        PODS,
        POD,
        changed(POD, "metadata.deletionTimestamp", "2026-12-01T00:00:00Z"),
        Channel.PODS,
    ),
    "pod is nominated": (
        PODS,
        WAITING,
        changed(WAITING, "status.nominatedNodeName", "main-01"),
        Channel.SCHEDULER,
    ),
    "pod goes": (PODS, POD, None, Channel.PODS),
    "pod's heartbeat": (PODS, POD, changed(POD, "status.podIP", "10.0.0.1"), None),
    "pod's managed fields": (PODS, POD, changed(POD, "metadata.managedFields", [{}]), None),
    "node appears": (NODES, None, NODE, Channel.NODES),
    "node is cordoned": (NODES, NODE, changed(NODE, "spec.unschedulable", True), Channel.NODES),
    "node is not ready": (
        NODES,
        NODE,
        changed(NODE, "status.conditions.0.status", "Unknown"),
        Channel.NODES,
    ),
    "node's heartbeat": (
        NODES,
        NODE,
        changed(NODE, "status.conditions.0.lastHeartbeatTime", "2026-12-01T00:00:10Z"),
        None,
    ),
    "node's images": (NODES, NODE, changed(NODE, "status.images", []), None),
    "device plugin is up": (
        NODES,
        make_node_object(gpus=None),
        make_node_object(gpus=8),
        Channel.NODES,
    ),
    "job is resized": (JOBS, JOB, changed(JOB, "spec.parallelism", 2), Channel.SCHEDULER),
    "job's counters": (JOBS, JOB, changed(JOB, "status.active", 3), None),
    "job completes": (
        JOBS,
        JOB,
        changed(JOB, "status.conditions", [{"type": "Complete", "status": "True"}]),
        Channel.SCHEDULER,
    ),
    "priority changes": (PRIORITY_CLASSES, CLASS, changed(CLASS, "value", 5), Channel.SCHEDULER),
    "class's labels": (
        PRIORITY_CLASSES,
        CLASS,
        changed(CLASS, "metadata.labels", {"a": "b"}),
        None,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_channel_of(name: str) -> None:
    resource, old, new, want = CHANGES[name]
    assert channel_of(resource, old, new) == want


def make_cache() -> tuple[ClusterCache, list[Channel]]:
    woken: list[Channel] = []
    return ClusterCache(WATCHED, woken.append, clock=lambda: 5000.0), woken


def test_complete_only_when_every_source_has_answered() -> None:
    cache, woken = make_cache()
    for resource in WATCHED:
        cache.replace(resource, [])
        assert not cache.view().complete
        assert str(resource) in cache.view().missing
        cache.alive(resource)
    assert cache.view().complete
    assert cache.view().missing == {}
    assert woken == [Channel.SCHEDULER]  # once, when it became whole


def test_a_lost_source_makes_it_partial_and_says_why_until_it_is_back() -> None:
    cache, woken = make_cache()
    for resource in WATCHED:
        cache.replace(resource, [NODE] if resource == NODES else [])
        cache.alive(resource)
    woken.clear()
    cache.lost(NODES, Unreachable("east", Verb.WATCH, "nodes", "connection refused."))
    view = cache.view()
    assert not view.complete
    assert list(view.missing) == ["nodes"]
    assert "connection refused" in view.missing["nodes"]
    assert view.of(NODES) == (NODE,)  # the last state stays, with its age
    cache.alive(NODES)
    assert cache.view().complete
    assert woken == [Channel.SCHEDULER]


def test_a_new_list_leaves_no_ghosts() -> None:
    cache, woken = make_cache()
    cache.replace(PODS, [make_pod_object("a", node="n"), make_pod_object("b", node="n")])
    woken.clear()
    cache.replace(PODS, [make_pod_object("b", node="n")])
    assert [p["metadata"]["name"] for p in cache.view().of(PODS)] == ["b"]
    assert woken == [Channel.PODS]
    woken.clear()
    cache.replace(PODS, [make_pod_object("b", node="n")])
    assert woken == []


def test_a_late_delete_of_an_earlier_namesake_changes_nothing() -> None:
    cache, woken = make_cache()
    cache.replace(PODS, [make_pod_object("a", node="n", uid="second")])
    woken.clear()
    cache.apply(PODS, event("DELETED", make_pod_object("a", node="n", uid="first"), 7))
    assert [p["metadata"]["uid"] for p in cache.view().of(PODS)] == ["second"]
    assert woken == []


def test_version_rises_with_every_change_even_one_that_wakes_nobody() -> None:
    cache, woken = make_cache()
    cache.replace(NODES, [NODE])
    before = cache.view().version
    woken.clear()
    cache.apply(NODES, event("MODIFIED", changed(NODE, "status.images", []), 9))
    assert cache.view().version == before + 1
    assert woken == []
