"""`concertina-run` as a real process, for tests and benchmarks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.trainer.job import ROOT, marked, wait_for

WORKER = "tests/integration/trainer/worker.py"


class Launcher:
    """Runs `concertina-run OPTIONS SCRIPT ARGUMENTS`; its end kills what is left."""

    def __init__(
        self, folder: Path, *options: str, script: tuple[str, ...] = (), **environment: str
    ) -> None:
        self.log = folder / "steps.log"
        self.output = folder / "agent.out"
        script = script or (WORKER, "--log", str(self.log))
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CONCERTINA_")}
        self.mark = f"CONCERTINA_TEST_MARK={folder}"
        clean |= {"PYTHONPATH": str(ROOT), "PACE_S": "0.01", "CONCERTINA_TEST_MARK": str(folder)}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainer_runtime.agent.run", *options, *script],
                cwd=ROOT, env=clean | environment, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        self.wait_nothing_left()

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def _wait(self, what: str, condition: Callable[[], Any]) -> Any:
        """The condition's first true value; fails with the output when time or the agent ends."""

        def look() -> Any:
            ended = self.process.poll() is not None
            value = condition()
            assert value or not ended, f"the agent ended ({self.process.returncode})"
            return value

        try:
            return wait_for(what, look, 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def wait_said(self, pattern: str, count: int = 1) -> re.Match[str]:
        """The `count`-th match in the output."""

        def found() -> re.Match[str] | None:
            matches = list(re.finditer(pattern, self.said()))
            return matches[count - 1] if len(matches) >= count else None

        return self._wait(f"{pattern!r}, {count} times", found)

    def steps(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().split("\n")[:-1] if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def wait_world(self, size: int, beyond: int = 0) -> int:
        """A step after `beyond` that `size` replicas committed."""

        def found() -> int:
            steps = [s["step"] for s in self.steps() if s["world"] == size and s["step"] > beyond]
            return next((step for step in steps if steps.count(step) == size), 0)

        return self._wait(f"{size} replicas beyond step {beyond}", found)

    def last(self) -> int:
        return max((each["step"] for each in self.steps()), default=0)

    def pids(self) -> list[int]:
        """Processes of this launch, by their initial environment; the agent isn't asked."""
        return marked(self.mark)

    def rank_pids(self, count: int) -> list[int]:
        """Of the first `count` ranks that started."""
        return [int(self.wait_said(r"pid (\d+): replica ", n + 1)[1]) for n in range(count)]

    def wait_nothing_left(self) -> None:
        wait_for("no process left", lambda: not self.pids(), 10)

    def wait(self, deadline_s: float = 30.0) -> int:
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs\n{self.said()}") from None


def time_replacement(launcher: Launcher, pid: int, world: int) -> dict[str, float]:
    """Kill a rank; seconds until the standby was given its task (as the agent measures it, from
    the moment it saw the end) and until `world` replicas commit again (from the kill)."""
    count = len(re.findall(r"takes its place", launcher.said()))
    before, started = launcher.last(), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    line = launcher.wait_said(r"takes its place \(([a-z ]+), ([0-9.]+) ms\)", count + 1)
    launcher.wait_world(world, beyond=before + 1)
    return {"takeover_s": float(line[2]) / 1000, "whole_again_s": time.monotonic() - started}
