"""Our two replicas against plain DDP: the same model, samples a step and threads, in turn.

    .venv/bin/python -m tests.benchmarks.trainer_throughput

Each replica computes its share in one pass in both, so that the runtimes differ and nothing else.
"""

from __future__ import annotations

import statistics

from tests.benchmarks import trainer_commits as commits
from tests.benchmarks import trainer_torchrun
from tests.benchmarks.trainer_model import GLOBAL_BATCH
from tests.benchmarks.trainer_processes import BenchError, Processes
from tests.benchmarks.trainer_resize import Ours

REPLICAS, ROUNDS, STEPS = 2, 4, 25


def measure(rounds: int = ROUNDS) -> tuple[list[float], list[float]]:
    """Seconds a step, of each run of ours and each of DDP."""
    ours, ddp = [], []
    for _ in range(rounds):
        ours.append(_ours())
        ddp.append(_ddp())
    return ours, ddp


def ratio(ours: list[float], ddp: list[float]) -> float:
    """Of our throughput to DDP's."""
    return statistics.median(ddp) / statistics.median(ours)


def _ours() -> float:
    with Processes("throughput") as job:
        share = str(GLOBAL_BATCH // REPLICAS)
        Ours(job).start(REPLICAS, "--micro-batch", share)
        return _step_s(job)


def _ddp() -> float:
    with Processes("throughput") as job:
        trainer_torchrun.start(job, REPLICAS)
        return _step_s(job)


def _step_s(job: Processes) -> float:
    job.wait_whole(REPLICAS, steps=STEPS, since=0.0)
    # The first in a group pays for what is set up lazily.
    whole = [each for each in job.commits() if each.world == REPLICAS][2 * REPLICAS :]
    found = commits.step_s(whole, REPLICAS)
    if found is None:
        raise BenchError(f"no two steps of {REPLICAS} replicas\n{job.said()[-2000:]}")
    return found


if __name__ == "__main__":
    print(*(values := measure()), ratio(*values))
