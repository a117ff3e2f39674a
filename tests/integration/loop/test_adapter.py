"""The production client, list and watch, against the sandbox's API server as a process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cluster.cache import ClusterCache
from controlplane.cluster.channels import Channel
from controlplane.cluster.client import connect
from controlplane.cluster.interface import (
    Cluster,
    ClusterAddress,
    Conflict,
    Invalid,
    NotFound,
    Unreachable,
)
from controlplane.cluster.kinds import elastic_kind
from controlplane.cluster.kinds.base import Stamp, command_of, epoch_of
from controlplane.cluster.resources import JOBS, NODES, SECRETS, WATCHED
from controlplane.cluster.watch import Source, SourceGroup, list_all
from tests.manifests import make_job_object, make_node_object
from tests.stack import Stack, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path, nodes="")
    try:
        stack.launch("sandbox")
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def cluster(stack: Stack) -> Iterator[Cluster]:
    cluster = connect(ClusterAddress("sandbox", str(stack.kubeconfig)))
    yield cluster
    cluster.close()


class Following:
    """A cache that follows the cluster, and what it was told."""

    def __init__(self, cluster: Cluster) -> None:
        self.woken: list[Channel] = []
        self.lost: list[str] = []
        self.cache = ClusterCache(
            WATCHED, self.woken.append, on_lost=lambda _, error: self.lost.append(str(error))
        )
        self.group = SourceGroup([Source(cluster, r, self.cache) for r in WATCHED])

    def __enter__(self) -> Following:
        self.group.start()
        wait_until(lambda: self.cache.view().complete, "every source to answer")
        return self

    def __exit__(self, *_: object) -> None:
        assert self.group.stop(2.0)

    def names(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.cache.view().of(NODES))


def test_a_conditional_resize_and_its_conflict(stack: Stack, cluster: Cluster) -> None:
    stack.create("batch/v1", "default", "jobs", make_job_object("llama", "default", parallelism=4))
    kind = elastic_kind("Job")
    assert kind is not None
    read = cluster.get(JOBS, "default", "llama")
    (write,) = kind.resize(read, 2, (), Stamp(3, "c-1"))
    cluster.patch(write.resource, write.namespace, write.name, write.body)
    after = cluster.get(JOBS, "default", "llama")
    assert (after["spec"]["parallelism"], after["spec"]["completions"]) == (2, 2)
    assert (epoch_of(after), command_of(after)) == (3, "c-1")
    (stale,) = kind.resize(read, 1, (), Stamp(3, "c-2"))
    with pytest.raises(Conflict) as caught:
        cluster.patch(stale.resource, stale.namespace, stale.name, stale.body)
    assert caught.value.object == "jobs.batch default/llama"
    assert cluster.get(JOBS, "default", "llama")["spec"]["parallelism"] == 2


def test_errors_of_a_real_server(cluster: Cluster) -> None:
    with pytest.raises(NotFound, match="nobody"):
        cluster.get(JOBS, "default", "nobody")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": "default", "name": "Not_A_Name"},
    }
    with pytest.raises(Invalid):
        cluster.apply(SECRETS, secret)


def test_lists_in_pages(stack: Stack, cluster: Cluster) -> None:
    for number in range(7):
        stack.create("v1", None, "nodes", make_node_object(f"n{number}"))
    page = cluster.list(NODES, limit=3)
    assert len(page.items) == 3
    assert page.continue_token
    items, version = list_all(cluster, NODES)
    assert sorted(i["metadata"]["name"] for i in items) == [f"n{n}" for n in range(7)]
    assert version == page.resource_version


@pytest.mark.parametrize("how", ["event", "status"])
def test_410_lists_again_and_leaves_no_ghosts(stack: Stack, cluster: Cluster, how: str) -> None:
    stack.create("v1", None, "nodes", make_node_object("stays"))
    stack.create("v1", None, "nodes", make_node_object("goes"))
    with Following(cluster) as following:
        assert following.names() == ["goes", "stays"]
        stack.api.post("/sandbox/v1/expire", json={"watches": True, "as": how}).raise_for_status()
        stack.delete("v1", None, "nodes", "goes")
        stack.create("v1", None, "nodes", make_node_object("comes"))
        wait_until(lambda: following.names() == ["comes", "stays"], "the newest state")
        assert following.cache.view().complete


def test_a_server_that_goes_away_and_comes_back(stack: Stack, cluster: Cluster) -> None:
    stack.create("v1", None, "nodes", make_node_object("before"))
    with Following(cluster) as following:
        stack.kill("sandbox")
        wait_until(lambda: not following.cache.view().complete, "the loss to be noticed")
        assert following.names() == ["before"]  # the last state, known to be old
        assert "on cluster sandbox" in following.lost[0]
        stack.launch("sandbox")
        stack.create("v1", None, "nodes", make_node_object("after"))
        wait_until(
            lambda: following.cache.view().complete, "the sources to come back", timeout_s=30
        )
        wait_until(lambda: following.names() == ["after", "before"], "what happened meanwhile")


def test_watches_of_a_silent_server_stop_within_two_seconds(cluster: Cluster) -> None:
    following = Following(cluster)
    following.__enter__()
    began = time.monotonic()
    assert following.group.stop(2.0)
    assert time.monotonic() - began < 2


def test_nobody_there(tmp_path: Path, stack: Stack, cluster: Cluster) -> None:
    stack.end("sandbox")
    with pytest.raises(Unreachable) as caught:
        cluster.list(NODES)
    assert "Check the address" in str(caught.value)
