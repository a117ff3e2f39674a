"""Deployments through ReplicaSets, and the garbage collector around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.sandbox.controllers.pods import leaving_first
from controlplane.sandbox.kinds import CONFIGMAP, DEPLOYMENT, NODE, POD, REPLICASET
from controlplane.sandbox.objects import meta, name_of
from tests.unit.sandbox.builders import SandboxCluster, make_deployment, make_pod, running_cluster


def scale(cluster: SandboxCluster, replicas: int) -> None:
    cluster.change(DEPLOYMENT, "chat", lambda d: d["spec"].update(replicas=replicas))


def counts(cluster: SandboxCluster) -> tuple[int, int, int]:
    """replicas, updated, available."""
    status = cluster.get(DEPLOYMENT, "chat")["status"]
    return tuple(  # type: ignore[return-value]
        status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")
    )


async def test_scale_up_and_down(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(DEPLOYMENT, make_deployment(replicas=2, gpus=4))
        await cluster.advance(1.5)
        assert counts(cluster) == (2, 2, 2)
        for size in (6, 3, 0):
            scale(cluster, size)
            await cluster.advance(3.0)
            assert counts(cluster) == (size, size, size)
            assert len(cluster.pods("chat")) == size
        status = cluster.get(DEPLOYMENT, "chat")["status"]
        assert (
            status["observedGeneration"]
            == cluster.get(DEPLOYMENT, "chat")["metadata"]["generation"]
        )


async def test_deletion_cost_names_who_leaves(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(DEPLOYMENT, make_deployment(replicas=4, gpus=4))
        await cluster.advance(1.5)
        victims = {name_of(pod) for pod in cluster.pods("chat")[1:3]}
        cost = {"controller.kubernetes.io/pod-deletion-cost": "-100"}
        for name in victims:
            cluster.change(POD, name, lambda p: p["metadata"].update(annotations=cost))
        scale(cluster, 2)
        await cluster.advance(3.0)
        assert victims.isdisjoint(name_of(pod) for pod in cluster.pods("chat"))


@pytest.mark.parametrize(
    ("strategy", "most", "least"),
    [
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, 5, 4),
        ({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}, 4, 2),
        ({"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": "25%"}}, 6, 3),
        ({"type": "Recreate"}, 4, 0),
    ],
)
async def test_roll_out(tmp_path: Path, strategy: dict[str, Any], most: int, least: int) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(DEPLOYMENT, make_deployment(replicas=4, strategy=strategy))
        await cluster.advance(1.5)
        new = {"name": "main", "image": "app:2"}
        cluster.change(
            DEPLOYMENT, "chat", lambda d: d["spec"]["template"]["spec"].update(containers=[new])
        )
        for _ in range(60):
            await cluster.advance(0.25)
            live = [p for p in cluster.pods("chat") if not meta(p).get("deletionTimestamp")]
            assert len(live) <= most
            assert counts(cluster)[2] >= least
        assert counts(cluster) == (4, 4, 4)
        images = {pod["spec"]["containers"][0]["image"] for pod in cluster.pods("chat")}
        assert images == {"app:2"}
        sizes = [rs["spec"]["replicas"] for rs in cluster.store.list(REPLICASET)]
        assert sorted(sizes) == [0, 4]
        revision = meta(cluster.get(DEPLOYMENT, "chat"))["annotations"]
        assert revision["deployment.kubernetes.io/revision"] == "2"


async def test_failed_pod_is_replaced(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(DEPLOYMENT, make_deployment(replicas=2))
        await cluster.advance(1.5)
        victim = cluster.pods("chat")[0]
        assert cluster.store.hooks.send_signal is not None
        cluster.store.hooks.send_signal(victim, "KILL")
        await cluster.advance(2.0)
        assert cluster.get(POD, name_of(victim))["status"]["phase"] == "Failed"
        assert counts(cluster) == (2, 2, 2)


@pytest.mark.parametrize("how", ["Background", "Foreground"])
async def test_deletion_takes_everything_along(tmp_path: Path, how: str) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(DEPLOYMENT, make_deployment(replicas=2))
        await cluster.advance(1.5)
        cluster.store.delete(DEPLOYMENT, "default", "chat", propagation=how)
        await cluster.settle()
        there = cluster.store.find(DEPLOYMENT, "default", "chat") is not None
        assert there is (how == "Foreground"), "foreground: it stays until its pods have ended"
        await cluster.advance(3.0)
        assert cluster.store.find(DEPLOYMENT, "default", "chat") is None
        assert cluster.store.list(REPLICASET) == []
        assert cluster.pods("chat") == []


async def test_orphans_go_on(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(DEPLOYMENT, make_deployment(replicas=1))
        await cluster.advance(1.5)
        cluster.store.delete(DEPLOYMENT, "default", "chat", propagation="Orphan")
        await cluster.advance(1.0)
        assert cluster.store.find(DEPLOYMENT, "default", "chat") is None
        [replicaset] = cluster.store.list(REPLICASET)
        assert "ownerReferences" not in meta(replicaset)
        assert len(cluster.pods("chat")) == 1


async def test_dependent_of_an_owner_that_never_was(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-uid"}
        child = {"name": "child", "namespace": "default", "ownerReferences": [owner]}
        cluster.create(CONFIGMAP, {"metadata": child})
        await cluster.settle()
        assert cluster.store.find(CONFIGMAP, "default", "child") is None


async def test_pods_of_a_node_that_is_deleted(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, "main=2x8") as cluster:
        cluster.create(DEPLOYMENT, make_deployment(replicas=2, gpus=8))
        await cluster.advance(1.5)
        cluster.store.delete(NODE, None, "main-0")
        await cluster.advance(2.0)
        assert sorted(cluster.nodes_of(cluster.pods("chat"))) == ["", "main-1"]


def make_placed(name: str, node: str = "", **more: Any) -> dict[str, Any]:
    phase, ready = more.get("phase", "Running"), more.get("ready", True)
    pod = make_pod(name)
    pod["spec"]["nodeName"] = node
    pod["metadata"]["creationTimestamp"] = more.get("created", "2026-12-01T00:00:00Z")
    pod["metadata"]["annotations"] = (
        {"controller.kubernetes.io/pod-deletion-cost": more["cost"]} if "cost" in more else {}
    )
    moment = "2026-12-01T00:00:10Z"
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": moment}
    pod["status"] = {"phase": phase, "conditions": [condition]}
    return pod


@pytest.mark.parametrize(
    ("leaves", "stays"),
    [
        (make_placed("a"), make_placed("b", "n1")),
        (make_placed("a", "n1", phase="Pending", ready=False), make_placed("b", "n2")),
        (make_placed("a", "n1", ready=False), make_placed("b", "n2")),
        (make_placed("a", "n1", cost="-5"), make_placed("b", "n2")),
        (make_placed("a", "n1", created="2026-12-01T00:00:05Z"), make_placed("b", "n2")),
        (make_placed("a", "n1", cost="not a number"), make_placed("b", "n2", cost="1")),
    ],
)
def test_order_of_leaving(leaves: dict[str, Any], stays: dict[str, Any]) -> None:
    assert [name_of(pod) for pod in leaving_first([stays, leaves])] == ["a", "b"]


def test_pods_that_share_a_node_leave_first() -> None:
    pods = [make_placed("a", "n1"), make_placed("b", "n2"), make_placed("c", "n2")]
    assert name_of(leaving_first(pods, pods)[-1]) == "a"
