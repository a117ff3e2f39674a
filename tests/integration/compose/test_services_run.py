"""Each service's command, as docker-compose.yml gives it, runs and passes its own health check.

No container engine here: the commands run as local processes with the file's environment, in which
host names and ports lead to a PostgreSQL and a Valkey of the test's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.supervisor.config import ROOT
from controlplane.supervisor.posix import descendants, die_with_parent, free_port, kill_quietly
from tests.integration.compose.composefile import (
    OURS,
    command_of,
    environment_of,
    health_of,
    load,
)
from tests.services import PostgresCluster, ValkeyServer
from tests.services.postgres import skip_reason

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason())),
]

GIVEN = {"CONCERTINA_SECRET_KEY": "k" * 64, "POSTGRES_PASSWORD": "not-used-by-trust"}
HEALTHY_SECONDS = 60.0
STOP_SECONDS = 6.0


class LocalCompose:
    """The file's services on this machine; `folder` stands for the containers' state folder."""

    def __init__(self, folder: Path, postgres: PostgresCluster, valkey: ValkeyServer) -> None:
        self.services: dict[str, Any] = load()["services"]
        self.folder = folder
        self.web_port = free_port()
        self.replaced = {
            "postgres:5432": f"127.0.0.1:{postgres.port}",
            "redis:6379": f"127.0.0.1:{valkey.port}",
            "/var/lib/concertina": str(folder),
            "127.0.0.1:8000": f"127.0.0.1:{self.web_port}",
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def localized(self, text: str) -> str:
        for there, here in self.replaced.items():
            text = text.replace(there, here)
        return text

    def environment(self, name: str) -> dict[str, str]:
        given = environment_of(name, self.services, GIVEN)
        values = {key: self.localized(value) for key, value in given.items()}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", **values}

    def command(self, name: str) -> list[str]:
        """As in the file, save the port and that it listens on loopback alone."""
        words = command_of(name, self.services)
        swapped = {"8000": str(self.web_port), "0.0.0.0": "127.0.0.1"}
        return [swapped.get(word, word) for word in words]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self, name: str) -> subprocess.Popen[bytes]:
        with self.log(name).open("wb") as log:
            self.running[name] = subprocess.Popen(
                self.command(name),
                cwd=ROOT,
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
        return self.running[name]

    def healthy(self, name: str) -> bool:
        words = [self.localized(word) for word in health_of(name, self.services)]
        return subprocess.call(words, cwd=ROOT, env=self.environment(name)) == 0

    def stop(self, name: str) -> float:
        """Seconds that it took to end after SIGTERM."""
        process = self.running.pop(name)
        below = descendants(process.pid)
        begun = time.monotonic()
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid in below:
            kill_quietly(pid, signal.SIGKILL)
        return time.monotonic() - begun


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCompose]:
    folder = tmp_path_factory.mktemp("compose")
    (folder / "health").mkdir()
    with PostgresCluster() as postgres, ValkeyServer() as valkey:
        postgres.create_database("concertina")  # as the image does for POSTGRES_DB
        local = LocalCompose(folder, postgres, valkey)
        migrate = local.start("migrate")
        assert migrate.wait(90) == 0, local.log("migrate").read_text()[-3000:]
        local.running.clear()
        try:
            yield local
        finally:
            for name in list(local.running):
                local.stop(name)


@pytest.mark.parametrize("name", OURS)
def test_the_command_runs_and_its_health_check_passes(compose: LocalCompose, name: str) -> None:
    assert not compose.healthy(name), "nothing runs yet, so the check must fail"
    process = compose.start(name)
    deadline = time.monotonic() + HEALTHY_SECONDS
    while not compose.healthy(name):
        ended = process.poll()
        tail = compose.log(name).read_text(errors="replace")[-3000:]
        assert ended is None, f"{name} ended with {ended}:\n{tail}"
        assert time.monotonic() < deadline, f"{name} did not become healthy:\n{tail}"
        time.sleep(0.2)  # poll interval of a condition with a deadline
    assert compose.stop(name) < STOP_SECONDS
