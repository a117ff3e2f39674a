"""The one place that picks connections: kept while the kubeconfig is the same, made anew after."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import wiring
from controlplane.cluster.interface import ClusterAddress
from tests.fakes import FakeCluster


class Row:
    """As much of a Cluster row as a connection needs."""

    def __init__(self, path: Path, name: str = "east") -> None:
        self.name, self.kubeconfig_path = name, str(path)
        self.context, self.in_cluster = "", False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeCluster]]:
    clusters: list[FakeCluster] = []

    def connect(address: ClusterAddress) -> FakeCluster:
        clusters.append(FakeCluster(address.name))
        return clusters[-1]

    monkeypatch.setattr(wiring, "connect", connect)
    wiring.forget()
    yield clusters
    wiring.forget()


def test_a_connection_is_kept(made: list[FakeCluster], tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("one")
    assert wiring.cluster_for(Row(path)) is wiring.cluster_for(Row(path))
    assert wiring.cluster_for(Row(path, "west")) is not wiring.cluster_for(Row(path))
    assert [cluster.name for cluster in made] == ["east", "west"]


def test_a_new_kubeconfig_is_a_new_connection(made: list[FakeCluster], tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("one")
    first = wiring.cluster_for(Row(path))
    os.utime(path, ns=(1, 1))
    assert wiring.cluster_for(Row(path)) is not first
    assert len(made) == 2


def test_fault_injection_goes_to_the_clusters_own_connection(
    made: list[FakeCluster], tmp_path: Path
) -> None:
    wiring.signal_pod(Row(tmp_path / "config"), "ml", "llama-0", "KILL")
    assert made[0].signals == [("ml", "llama-0", "KILL")]
