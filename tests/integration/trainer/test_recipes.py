"""The tiny recipes train as a user starts them, and a second replica joins."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.trainer.job import ROOT, Job, wait_for

LINE = re.compile(r"step (\d+) loss ([\d.]+) on (\d+) replicas")


class Replica:
    """One process of a recipe; what its leader printed is in `steps`."""

    def __init__(self, job: Job, name: str, *arguments: str) -> None:
        self.output = job.folder / f"{name}.out"
        environment = {
            "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"),
            "CONCERTINA_AUTHORITY": f"127.0.0.1:{job.port}", "CONCERTINA_REPLICA": name,
            "CONCERTINA_CACHE_DIR": str(job.folder / "cache"),
        }  # fmt: skip
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainer_runtime.recipes.run", *arguments],
                cwd=ROOT, stderr=file, env=environment,
            )  # fmt: skip

    @property
    def steps(self) -> list[tuple[int, float, int]]:
        found = LINE.findall(self.output.read_text())
        return [(int(step), float(loss), int(world)) for step, loss, world in found]

    def wait_step(self, *, world: int, beyond: int = 0) -> int:
        """The first printed step after `beyond` of so many replicas."""

        def reached() -> list[int]:
            assert self.process.poll() is None, self.output.read_text()
            return [step for step, _, size in self.steps if size == world and step > beyond]

        return wait_for(f"{world} replicas beyond step {beyond}", reached, 100)[0]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def two(job: Job, *arguments: str) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas, of which the second comes when the first trains."""
    replicas = []
    try:
        replicas.append(Replica(job, "a", *arguments))
        replicas[0].wait_step(world=1)
        replicas.append(Replica(job, "b", *arguments))
        yield replicas[0], replicas[1]
    finally:
        for each in replicas:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()


@pytest.mark.parametrize("name", ["llama-tiny", "gpt-oss-tiny"])
def test_recipe_trains_while_a_replica_joins(name: str, tmp_path: Path) -> None:
    family = "llama" if name.startswith("llama") else "gpt_oss"
    settings = {
        f"model.{family}.num_hidden_layers": "2", "data.length": "32", "training.print_every": "1",
        "schedule.warm_up_steps": "5", "optimizer.learning_rate": "0.005",
    }  # fmt: skip
    arguments = [name, *(f"--set={key}={value}" for key, value in settings.items())]
    with Job(tmp_path) as job, two(job, *arguments) as (first, second):
        joined = first.wait_step(world=2)
        first.wait_step(world=2, beyond=max(joined, 30) + 5)
        steps = first.steps
        assert [step for step, _, _ in steps] == list(range(1, len(steps) + 1))
        losses = [loss for _, loss, _ in steps]
        assert 5 < losses[0] < 6.5  # ln 256 = 5.55: knows nothing yet
        assert sum(losses[-5:]) / 5 < losses[0] - 1.5
        assert "rank 1 of 2" in second.output.read_text()
        assert [second.end(), first.end()] == [0, 0], first.output.read_text()


def test_adapters_are_all_that_a_joiner_gets(tmp_path: Path) -> None:
    """It has its base from the recipe's seed; one with another base is refused, and ends."""
    arguments = [
        "llama-tiny", "--set=mode=lora", "--set=model.llama.num_hidden_layers=1",
        "--set=data.length=16", "--set=training.print_every=1", "--set=lora.dropout=0.1",
        f"--set=training.checkpoint_dir={tmp_path / 'checkpoints'}",
    ]  # fmt: skip
    with Job(tmp_path) as job, two(job, *arguments) as (first, second):
        step = first.wait_step(world=2)
        other = Replica(job, "c", *arguments, "--set=model.llama.initializer_range=0.03")
        assert other.process.wait(60) == 1
        assert "the frozen weights differ from those of the state" in other.output.read_text()
        first.wait_step(world=2, beyond=step)
        assert [second.end(), first.end()] == [0, 0], first.output.read_text()
        (checkpoint,) = (tmp_path / "checkpoints").glob("*.state")
        # A layer's four adapters of rank 8 in float32, with two moments; the base has 1.4 MB.
        assert 4 * 2 * 160 * 8 * 4 * 3 < checkpoint.stat().st_size < 300_000
