"""The real processes under the real supervisor: up, stopped, up again where it was, and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.supervisor.config import ROOT
from controlplane.supervisor.posix import descendants, free_port, kill_quietly, parents

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

UP_SECONDS = 90.0
STOP_SECONDS = 5.0
PROCESSES = {"valkey", "sandbox", "web", "worker", "beat", "watcher", "demo"}


class Run:
    """One run of the supervisor on a state folder."""

    def __init__(self, state: Path, ports: dict[str, str]) -> None:
        environment = {**os.environ, **ports}
        for name in ("REDIS_URL", "DATABASE_URL", "DJANGO_SETTINGS_MODULE"):
            environment.pop(name, None)
        self.state = state
        self.address = f"http://127.0.0.1:{ports['CONCERTINA_PORT']}"
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "controlplane.supervisor", "--state-dir", str(state)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def wait_until_up(self) -> dict[str, Any]:
        """The times that the run wrote."""
        deadline = time.monotonic() + UP_SECONDS
        while "Ctrl-C stops everything." not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)  # poll interval of a condition with a deadline
        times: dict[str, Any] = json.loads((self.state / "up.json").read_text())
        return times

    def all_pids(self) -> set[int]:
        return {self.process.pid, *descendants(self.process.pid)}

    def end(self, signum: int, pid: int) -> float:
        """Send a signal; seconds until no process of the run is left."""
        pids = self.all_pids()
        begun = time.monotonic()
        os.kill(pid, signum)
        while pids & set(parents()):
            if time.monotonic() - begun > 3 * STOP_SECONDS:
                break
            self.process.poll()
            time.sleep(0.02)  # poll interval of a condition with a deadline
        seconds = time.monotonic() - begun
        left = pids & set(parents())
        assert not left, f"{left} still run after {seconds:.1f} s:\n{self.said}"
        return seconds


@contextmanager
def run(state: Path, ports: dict[str, str]) -> Iterator[Run]:
    started = Run(state, ports)
    try:
        yield started
    finally:
        for pid in started.all_pids():
            kill_quietly(pid, signal.SIGKILL)
        started.process.wait()


@pytest.fixture
def ports() -> dict[str, str]:
    names = ("CONCERTINA_PORT", "CONCERTINA_SANDBOX_PORT", "CONCERTINA_REDIS_PORT")
    return {name: str(free_port()) for name in names}


def fetch(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=5) as response:
        return response.status, response.read().decode()


def test_up_stopped_and_up_again(tmp_path: Path, ports: dict[str, str]) -> None:
    with run(tmp_path, ports) as first:
        times = first.wait_until_up()
        assert set(times["ready_s"]) == PROCESSES | {"prepare"}
        assert fetch(f"{first.address}/readyz")[0] == 200
        assert "<!doctype html>" in fetch(f"{first.address}/")[1].lower()
        password = (tmp_path / "demo-password").read_text().strip()
        assert f"Sign in as demo with the password {password}" in first.said
        assert first.end(signal.SIGINT, first.process.pid) < STOP_SECONDS
        assert first.process.wait() == 0
        assert first.lines[-1] == "Stopped."

    with run(tmp_path, ports) as again:
        times = again.wait_until_up()
        assert set(times["ready_s"]) == PROCESSES  # nothing to prepare
        second_supervisor = subprocess.run(
            [sys.executable, "-m", "controlplane.supervisor", "--state-dir", str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert second_supervisor.returncode == 1
        assert f"(process {again.process.pid})" in second_supervisor.stderr
        assert "Traceback" not in second_supervisor.stderr
        assert again.end(signal.SIGTERM, again.process.pid) < STOP_SECONDS


@pytest.mark.parametrize("killed", ["guard", "supervisor"])
def test_kill_9_leaves_no_process_behind(
    tmp_path: Path, ports: dict[str, str], killed: str
) -> None:
    with run(tmp_path, ports) as started:
        started.wait_until_up()
        (supervisor,) = (p for p, parent in parents().items() if parent == started.process.pid)
        pid = started.process.pid if killed == "guard" else supervisor
        assert started.end(signal.SIGKILL, pid) < STOP_SECONDS
