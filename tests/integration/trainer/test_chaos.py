"""A seeded series of events on a running job; afterwards nothing is lost, repeated or left over."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.trainer.job import Job, Running, check_agreement, terminate, wait_for

EVENTS = ("join", "join", "kill", "term", "stop", "wake", "two kills", "authority")


@dataclass
class Chaos:
    job: Job
    rng: random.Random
    alive: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    @property
    def training(self) -> list[str]:
        return [name for name in self.alive if name not in self.stopped]

    def join(self) -> None:
        name = f"r{len(self.job.replicas)}"
        self.job.start(name, PACE_S="0.005")
        self.alive.append(name)

    def end(self, number: int, count: int = 1) -> None:
        for name in self.rng.sample(self.training, count):
            self.alive.remove(name)
            self.job.replicas[name].signal(number)

    def event(self) -> str:
        """One that leaves at least two that train."""
        kind, spare = self.rng.choice(EVENTS), len(self.training) - 2
        match kind:
            case "join" if len(self.alive) < 5:
                self.join()
            case "kill" | "term" if spare > 0:
                self.end(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            case "two kills" if spare > 1:
                self.end(signal.SIGKILL, 2)
            case "stop" if spare > 0:
                name = self.rng.choice(self.training)
                self.stopped.append(name)
                self.job.replicas[name].signal(signal.SIGSTOP)
            case "wake" if self.stopped:
                self.job.replicas[self.stopped.pop()].signal(signal.SIGCONT)
            case "authority":
                assert self.job.authority is not None
                self.job.authority.signal(signal.SIGKILL)
                self.job.authority.wait()
                self.job.start_authority()
            case _:
                return self.event()
        return kind

    def newest(self) -> int:
        return max(self.job.replicas[name].last for name in self.training)

    def progress(self, steps: int) -> None:
        start = self.newest()
        try:
            wait_for(f"{steps} steps more", lambda: self.newest() >= start + steps)
        except AssertionError as error:
            raise AssertionError(f"{error} after {self.done}\n{self.job.outputs()}") from None

    def still(self) -> list[Running]:
        return [self.job.replicas[name] for name in self.alive]


@pytest.mark.parametrize("seed", [1])
def test_events_in_any_order(tmp_path: Path, seed: int) -> None:
    with Job(tmp_path, silence_s=3.0) as job:
        chaos = Chaos(job, random.Random(seed))
        for _ in range(3):
            chaos.join()
        job.wait_world(3)
        for _ in range(15):
            chaos.done.append(chaos.event())
            chaos.progress(chaos.rng.choice([0, 0, 1, 5]))
        for name in chaos.stopped:
            job.replicas[name].signal(signal.SIGCONT)
        job.wait_world(len(chaos.alive), beyond=chaos.newest())
        assert terminate(*chaos.still()) == [0] * len(chaos.alive), job.outputs()
        check_agreement(job)
        committed = list(job.committed())
        assert committed == list(range(1, len(committed) + 1))
        for name in chaos.alive:
            assert not any(job.left_behind(name).values()), (name, chaos.done)
