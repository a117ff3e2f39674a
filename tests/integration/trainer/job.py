"""Real processes of one training job: an authority and replicas, with what they logged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0


def wait_for(what: str, condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """The condition's first true value; AssertionError with `what` after the deadline."""
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.01)  # the interval of looking, not a wait for anything
    raise AssertionError(f"not within {deadline_s} s: {what}")


def marked(mark: str) -> list[int]:
    """Processes that run and were started with NAME=VALUE in their environment, or forked so."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes().decode(errors="replace")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark in environment.split("\0") and state != "Z":
            found.append(int(folder.name))
    return found


def shared_memory() -> set[str]:
    return {each.name for each in Path("/dev/shm").iterdir()}


class Zygote:
    """The process that forks the others; one for all tests of a session."""

    _one: Zygote | None = None

    def __init__(self, *preload: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CONCERTINA_")}
        # Its children, and theirs, are known by the environment that it was started with.
        self.mark = f"CONCERTINA_TEST_ZYGOTE={uuid.uuid4().hex}"
        clean |= dict([self.mark.split("=")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.trainer.zygote", *preload],
            cwd=ROOT, text=True,
            env={**clean, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._line() == "ready"

    @classmethod
    def one(cls, *preload: str) -> Zygote:
        if cls._one is None:
            cls._one = cls(*preload)
        return cls._one

    @classmethod
    def end(cls) -> None:
        if cls._one is not None:
            assert cls._one.process.stdin is not None
            cls._one.process.stdin.close()
            cls._one.process.wait(10)
            cls._one = None

    def fork(self, main: str, arguments: Sequence[str], output: Path, **env: str) -> int:
        request = {"main": main, "arguments": arguments, "environment": env, "output": str(output)}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self._line())

    def others(self) -> list[int]:
        """Processes that came of it and still run."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@dataclass
class Running:
    """A process with its output in files."""

    name: str
    pid: int
    output: Path
    log: Path | None = None

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        path = Path(f"{self.output}.code")
        return int(path.read_text()) if path.exists() else None

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
        return self.output.read_text() if self.output.exists() else ""

    def signal(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        wait_for(f"end of {self.name}: {self.said()}", lambda: self.code is not None, deadline_s)
        assert self.code is not None
        return self.code


@dataclass
class Job:
    folder: Path
    min_replicas: int = 1
    silence_s: float = 5.0
    progress_s: float = 60.0
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    program: str = "worker"
    port: int = 0
    authority: Running | None = None
    replicas: dict[str, Running] = field(default_factory=dict)
    started: int = 0
    pids: list[int] = field(default_factory=list)

    def __enter__(self) -> Job:
        self._shared = shared_memory()
        self.start_authority()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        every = [each for each in [*self.replicas.values(), self.authority] if each is not None]
        for each in every:
            each.signal(signal.SIGKILL)
        for each in every:
            each.wait()
        if failure is None:
            self.check_nothing_left()

    def check_nothing_left(self) -> None:
        """No process, half-written file or shared memory of this job, and of a replica that ended
        by itself no thread, socket or mapping either."""
        wait_for("no process is left", lambda: not Zygote.one().others(), 10)
        mine = ["concertina", *map(str, self.pids)]
        new = shared_memory() - self._shared
        assert not [name for name in new if any(each in name for each in mine)]
        for name, replica in self.replicas.items():
            if replica.code == 0 and self.program == "worker" and replica.steps:
                assert not any(self.left_behind(name).values()), (name, self.left_behind(name))

    def _spawn(
        self, name: str, main: str, arguments: Sequence[str], log: Path | None = None, **env: str
    ) -> Running:
        self.started += 1
        output = self.folder / f"{name}.{self.started}.out"
        env = {**self.environment, **env}
        self.pids.append(Zygote.one().fork(main, arguments, output, **env))
        return Running(name, self.pids[-1], output, log)

    def start_authority(self) -> Running:
        arguments = [
            "--port", str(self.port),
            "--min-replicas", str(self.min_replicas), "--silence-s", str(self.silence_s),
            "--progress-s", str(self.progress_s),
        ]  # fmt: skip
        self.authority = authority = self._spawn("authority", "authority", arguments)
        heard = wait_for(
            "authority listening",
            lambda: (
                [s for s in authority.said().splitlines() if "listening on" in s]
                or (authority.code is not None and [authority.said()])
            ),
        )
        assert authority.code is None, authority.said()
        self.port = int(heard[0].rpartition(":")[2])
        return authority

    def prepare(self, *names: str, **environment: str) -> None:
        """Start replicas that join when `admit` says so, so that all import torch at once."""
        for name in names:
            self.start(name, JOIN_WHEN=str(self.folder / f"{name}.join"), **environment)
        for name in names:
            wait_for(f"{name} prepared", lambda n=name: "prepared" in self.replicas[n].said())

    def admit(self, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}.join").touch()

    def start(self, name: str, *arguments: str, **environment: str) -> Running:
        """Start a replica; it joins when it is ready."""
        log = self.folder / f"{name}.log"
        arguments = (*self.arguments, *arguments)
        if self.program == "worker":
            arguments = ("--log", str(log), *arguments)
        self.replicas[name] = self._spawn(
            name, self.program, arguments, log,
            **{
                "CONCERTINA_AUTHORITY": f"127.0.0.1:{self.port}", "CONCERTINA_REPLICA": name,
                "STRIKE_FILE": str(self.folder / f"{name}.strike"), **environment,
            },
        )  # fmt: skip
        return self.replicas[name]

    def strike(self, name: str, *strikes: str) -> None:
        """Give a replica faults, all at once: see strikes.py."""
        partial = self.folder / f"{name}.strike.partial"
        partial.write_text(",".join(strikes))
        partial.replace(self.folder / f"{name}.strike")

    def holding(self, name: str) -> Path:
        """While this file is there, HOLD holds the replica."""
        path = self.folder / f"{name}.hold"
        path.touch()
        return path

    def wait_world(self, size: int, beyond: int = 0) -> int:
        """A step after `beyond` that all of `size` replicas committed; its number."""

        def reached() -> int:
            running = [r for r in self.replicas.values() if r.code is None]
            newest = [steps[-1] for r in running if (steps := r.steps)]
            good = [s["step"] for s in newest if s["world"] == size and s["step"] > beyond]
            return min(good) if len(good) == size else 0

        try:
            return wait_for(f"{size} replicas train beyond step {beyond}", reached)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.outputs()}") from None

    def outputs(self) -> str:
        every = [self.authority, *self.replicas.values()]
        return "\n".join(f"--- {r.name}\n{r.said()[-3000:]}" for r in every if r is not None)

    def wait_step_of(self, name: str, *, world: int, beyond: int) -> int:
        """The first step after `beyond` that this replica committed with `world` replicas."""

        def found() -> list[int]:
            steps = self.replicas[name].steps
            return [s["step"] for s in steps if s["world"] == world and s["step"] > beyond]

        return wait_for(f"{name} with {world} beyond step {beyond}\n{self.outputs()}", found)[0]

    def committed(self) -> dict[int, list[dict[str, Any]]]:
        """Step -> what each replica that committed (or adopted) it logged."""
        out: dict[int, list[dict[str, Any]]] = {}
        for replica in self.replicas.values():
            for step in replica.steps:
                out.setdefault(step["step"], []).append(step)
        return dict(sorted(out.items()))

    def left_behind(self, name: str) -> dict[str, Any]:
        """What a replica that ended still had after `close`: threads, sockets, groups."""
        lines = [s for s in self.replicas[name].said().splitlines() if s.startswith("left: ")]
        assert lines, self.replicas[name].said()
        return json.loads(lines[0].removeprefix("left: "))


def terminate(*running: Running) -> list[int]:
    """SIGTERM to all, and their exit codes."""
    for each in running:
        each.signal(signal.SIGTERM)
    return [each.wait() for each in running]


def check_batches(committed: dict[int, list[dict[str, Any]]], global_batch: int = 12) -> None:
    """Every sample of every committed step was used exactly once, in the sampler's order."""
    from tests.integration.trainer.worker import SAMPLES
    from trainer_runtime.sampler import ElasticSampler

    sampler = ElasticSampler(SAMPLES, global_batch)
    used: list[int] = []
    assert list(committed) == list(range(1, len(committed) + 1))
    for step, entries in committed.items():
        got = [i for entry in sorted(entries, key=lambda e: e["rank"]) for i in entry["indices"]]
        assert sorted(got) == sorted(sampler.batch()), f"step {step}: {entries}"
        used += sampler.batch()
        sampler.advance()
    for start in range(0, len(used) - SAMPLES + 1, SAMPLES):
        assert sorted(used[start : start + SAMPLES]) == list(range(SAMPLES))


def check_losses(
    committed: dict[int, list[dict[str, Any]]], want: dict[int, float], relative: float
) -> float:
    """Step by step, on every replica; the largest relative difference."""
    worst = 0.0
    for step, entries in committed.items():
        for entry in entries:
            worst = max(worst, abs(entry["loss"] - want[step]) / abs(want[step]))
            assert worst <= relative, f"step {step}: {entry['loss']!r} instead of {want[step]!r}"
    return worst


def check_agreement(job: Job, *names: str) -> None:
    """The replicas (all, if none is named) committed the same losses, each step once."""
    first: dict[int, float] = {}
    for name in names or job.replicas:
        steps = job.replicas[name].steps
        numbers = [s["step"] for s in steps]
        assert len(set(numbers)) == len(numbers), f"{name} committed a step twice: {numbers}"
        for step in steps:
            want = first.setdefault(step["step"], step["loss"])
            assert abs(step["loss"] - want) <= 1e-12 * abs(want), (name, step, want)
