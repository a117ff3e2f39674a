"""Processes of one benchmark: started in a folder, found again by a mark in their environment, and
none of them left at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks import trainer_commits as commits
from tests.benchmarks.trainer_commits import Commit
from tests.integration.trainer.job import ROOT

PATIENCE_S = 120.0
_LOOK_S = 0.005
_MARK = "CONCERTINA_BENCH_MARK"


class BenchError(RuntimeError):
    """A part could not be measured; the text says why."""


class Processes:
    """`folder` lies in memory, so that no disk is part of any figure. `log` is the log of commits
    of all of them, `output` takes what they print."""

    def __init__(self, name: str) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix=f"bench-{name}-", dir="/dev/shm")
        self.folder = Path(self._temporary.name)
        self.log, self.output = self.folder / "commits.jsonl", self.folder / "output"
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        # Those that start others first, else they would start them again.
        for each in self.started:
            each.kill()
            each.wait()
        until = time.monotonic() + PATIENCE_S
        while not self._none_left() and time.monotonic() < until:
            time.sleep(_LOOK_S)  # the interval of looking
        self._temporary.cleanup()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """`python ARGUMENTS`, one thread each as far as libraries are concerned."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CONCERTINA_")}
        clean |= {
            "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
            _MARK: str(self.folder),
        }  # fmt: skip
        with self.output.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=ROOT, env=clean | environment, stdout=out,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.started.append(process)
        return process

    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def commits(self) -> list[Commit]:
        return commits.read(self.log)

    def wait_for(self, what: str, found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """The first true value. Raises BenchError, with the end of what was printed, when it takes
        too long or what was started first, an agent or a lighthouse, ends before."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if value := found():
                return value
            if self.started[0].poll() is not None:
                code = self.started[0].returncode
                raise BenchError(f"ended with {code} before {what}\n{self.said()[-2000:]}")
            time.sleep(_LOOK_S)  # the interval of looking
        raise BenchError(f"not within {patience_s:g} s: {what}\n{self.said()[-2000:]}")

    def wait_whole(self, world: int, *, steps: int, since: float, without: int = 0) -> None:
        """Until a group of `world` has committed, and then `steps` more."""

        def whole() -> bool:
            at = commits.whole_since(self.commits(), since, world, without)
            if at is None:
                return False
            last = [each for each in self.commits() if each.at > at and each.world == world]
            return len(last) >= steps * world

        self.wait_for(f"{world} replicas commit", whole)

    def kill_one(self) -> tuple[int, float]:
        """SIGKILL to whoever committed last; its process id, and when."""
        victim = self.commits()[-1].pid
        at = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        return victim, at

    def _none_left(self) -> bool:
        left = [pid for pid in _pids() if _is_marked(pid, f"{_MARK}={self.folder}")]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left


def _pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _is_marked(pid: int, mark: str) -> bool:
    """Whether it is alive and was started with that environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return mark in environment.split("\0") and state != "Z"
