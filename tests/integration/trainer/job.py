"""Real processes of one training job: an authority and replicas, with what they logged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("worker.py")
DEADLINE_S = 60.0


def wait_for(what: str, condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """The condition's first true value; AssertionError with `what` after the deadline."""
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.01)  # the interval of looking, not a wait for anything
    raise AssertionError(f"not within {deadline_s} s: {what}")


@dataclass
class Running:
    """A process with its output in files."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    log: Path | None = None

    @property
    def steps(self) -> list[dict[str, Any]]:
        if self.log is None or not self.log.exists():
            return []
        lines = self.log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    @property
    def last(self) -> int:
        steps = self.steps
        return steps[-1]["step"] if steps else 0

    def said(self) -> str:
        return self.output.read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        return self.process.wait(deadline_s)


@dataclass
class Job:
    folder: Path
    min_replicas: int = 1
    silence_s: float = 5.0
    progress_s: float = 60.0
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    authority: Running | None = None
    replicas: dict[str, Running] = field(default_factory=dict)
    started: int = 0

    def __enter__(self) -> Job:
        self.start_authority()
        return self

    def __exit__(self, *_: object) -> None:
        for each in [*self.replicas.values(), self.authority]:
            if each is not None and each.process.poll() is None:
                each.process.kill()
                each.process.wait()

    def _spawn(
        self, name: str, arguments: Sequence[str], log: Path | None = None, **environment: str
    ) -> Running:
        self.started += 1
        output = self.folder / f"{name}.{self.started}.out"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CONCERTINA_")}
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=ROOT, stdout=file, stderr=file,
                env={**clean, "PYTHONPATH": str(ROOT), **self.environment, **environment},
            )  # fmt: skip
        return Running(name, process, output, log)

    def start_authority(self) -> Running:
        arguments = [
            "-m", "trainer_runtime.authority", "--port", str(self.port),
            "--min-replicas", str(self.min_replicas), "--silence-s", str(self.silence_s),
            "--progress-s", str(self.progress_s),
        ]  # fmt: skip
        self.authority = authority = self._spawn("authority", arguments)
        heard = wait_for(
            "authority listening",
            lambda: (
                [s for s in authority.said().splitlines() if "listening on" in s]
                or (authority.process.poll() is not None and [authority.said()])
            ),
        )
        assert authority.process.poll() is None, authority.said()
        self.port = int(heard[0].rpartition(":")[2])
        return authority

    def start(self, name: str, *arguments: str, **environment: str) -> Running:
        """Start a replica; it joins when it is ready."""
        log = self.folder / f"{name}.log"
        self.replicas[name] = self._spawn(
            name, [str(WORKER), "--log", str(log), *arguments], log,
            CONCERTINA_AUTHORITY=f"127.0.0.1:{self.port}", CONCERTINA_REPLICA=name,
            **environment,
        )  # fmt: skip
        return self.replicas[name]

    def wait_world(self, size: int, beyond: int = 0) -> int:
        """A step after `beyond` was committed by `size` replicas, and by all of them; its number."""

        def reached() -> int:
            newest = [r.steps[-1] for r in self.replicas.values() if r.steps]
            good = [s["step"] for s in newest if s["world"] == size and s["step"] > beyond]
            return min(good) if len(good) == size else 0

        try:
            return wait_for(f"{size} replicas train beyond step {beyond}", reached)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.outputs()}") from None

    def outputs(self) -> str:
        every = [self.authority, *self.replicas.values()]
        return "\n".join(f"--- {r.name}\n{r.said()[-3000:]}" for r in every if r is not None)

    def committed(self) -> dict[int, list[dict[str, Any]]]:
        """Step -> what each replica that committed (or adopted) it logged."""
        out: dict[int, list[dict[str, Any]]] = {}
        for replica in self.replicas.values():
            for step in replica.steps:
                out.setdefault(step["step"], []).append(step)
        return out


def terminate(*running: Running) -> list[int]:
    """SIGTERM to all, and their exit codes."""
    for each in running:
        each.signal(signal.SIGTERM)
    return [each.wait() for each in running]
