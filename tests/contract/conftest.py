"""Every test of the contract runs on each backend; where they differ, the sandbox is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.contract import backends
from tests.contract.backends import Cluster
from tests.contract.support import Space, open_space

BACKENDS = [pytest.param("sandbox", id="sandbox")]
# without it test_backends.py says in one line what was left out
if os.environ.get("KUBEBUILDER_ASSETS"):
    BACKENDS.append(pytest.param("apiserver", id="apiserver", marks=pytest.mark.apiserver))


@pytest.fixture(scope="session", params=BACKENDS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A running cluster without nodes, for the whole session."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sandbox":
        with backends.sandbox(folder, "--without", "emulator") as running:
            yield running
        return
    with backends.control_plane(folder) as running:
        yield running


@pytest.fixture
def space(cluster: Cluster) -> Iterator[Space]:
    """A namespace of the test's own; what it made is deleted after it."""
    opened = open_space(cluster)
    yield opened
    opened.close()
