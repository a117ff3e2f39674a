"""The same faults and joins under torchft (its nightly build), on the same model.

It is installed on first use into a folder of its own (.cache/torchft), without its torch: it runs
on the one that is here. Its fast setting: a silent replica is given up after 1 s instead of 5 s.
Where a replacement is needed, it is started at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks import trainer_commits as commits
from tests.benchmarks.trainer_downtime import REPLICAS, ROUNDS, STEPS_BETWEEN, Kills, kill_in_turn
from tests.benchmarks.trainer_processes import BenchError, Processes
from tests.integration.trainer.job import ROOT

VERSION = "2026.10.26"
PACKAGES = ("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
_JOB = "tests.benchmarks.trainer_torchft_job"
INSTALL_S = 180.0


def installed() -> Path:
    """The folder to put on PYTHONPATH. Raises BenchError where it can't be had."""
    folder = ROOT / ".cache" / f"torchft-{VERSION}"
    if folder.exists():
        return folder
    folder.parent.mkdir(exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix="torchft-partial-"))
    try:
        for packages in (("--no-deps", f"torchft-nightly=={VERSION}"), PACKAGES):
            command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(partial)]
            done = subprocess.run(
                [*command, *packages], capture_output=True, text=True, timeout=INSTALL_S
            )
            if done.returncode != 0:
                raise BenchError(f"torchft can't be installed: {done.stderr.strip()[-300:]}")
        partial.rename(folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"torchft can't be installed: {error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


class Torchft:
    """A lighthouse and its replicas, as `job`."""

    def __init__(self, job: Processes) -> None:
        self.job = job
        self._path = os.pathsep.join([str(ROOT), str(installed())])
        address = job.folder / "lighthouse"
        job.start("-m", _JOB, "lighthouse", "--address", str(address), PYTHONPATH=self._path)
        job.wait_for("a lighthouse", address.exists)
        self._lighthouse = address.read_text()

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            self.job.start(
                "-m", _JOB, "replica", "--commits", str(self.job.log),
                PYTHONPATH=self._path, TORCHFT_LIGHTHOUSE=self._lighthouse,
            )  # fmt: skip


def kills(rounds: int = ROUNDS, replicas: int = REPLICAS) -> Kills:
    with Processes("torchft") as job:
        torchft = Torchft(job)
        torchft.start(replicas)
        return kill_in_turn(job, rounds, replicas, replace=lambda _: torchft.start())


def joins(rounds: int = ROUNDS, replicas: int = REPLICAS) -> list[float]:
    """Seconds that a join, from one fewer, held up those that were there."""
    with Processes("torchft") as job:
        torchft = Torchft(job)
        torchft.start(replicas - 1)
        since = 0.0
        for _ in range(rounds):
            job.wait_whole(replicas - 1, steps=STEPS_BETWEEN, since=since)
            since = time.monotonic()
            torchft.start()
            job.wait_whole(replicas, steps=1, since=since)
            joiner = job.started.pop()
            joiner.kill()
            joiner.wait()
            since = time.monotonic()
        return commits.pauses(job.commits(), before=replicas - 1, after=replicas)


if __name__ == "__main__":
    print(kills())
    print(joins())
