"""How long a join and a leave hold up the replicas that stay. Figures, no assertions.

    .venv/bin/python -m tests.benchmarks.trainer_resize

Measured from outside: the time between the last commit in the old group and the first in the new
one, less an ordinary step; of the replica that waited longest. A joiner starts from nothing.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from tests.benchmarks import trainer_commits as commits
from tests.benchmarks.trainer_downtime import REPLICAS, ROUNDS, STEPS_BETWEEN
from tests.benchmarks.trainer_processes import Processes

_LISTENS = "listening on "


@dataclass(frozen=True, slots=True)
class Pauses:
    """In seconds. `step_s` is by the number of replicas."""

    join: list[float]
    leave: list[float]
    step_s: dict[int, float | None]


class Ours:
    """An authority and replicas, as `job`; without an agent, so that each is started by hand."""

    def __init__(self, job: Processes) -> None:
        self.job = job
        job.start("-m", "trainer_runtime.authority", "--port", "0")
        job.wait_for("an authority", lambda: _LISTENS in job.said())
        self._address = job.said().partition(_LISTENS)[2].split()[0]

    def start(self, count: int = 1, *options: str) -> None:
        for number in range(count):
            self.job.start(
                "-m", "tests.benchmarks.trainer_job", "--commits", str(self.job.log), *options,
                CONCERTINA_AUTHORITY=self._address,
                CONCERTINA_REPLICA=f"replica-{len(self.job.started) + number}",
            )  # fmt: skip


def measure(rounds: int = ROUNDS, replicas: int = REPLICAS) -> Pauses:
    """The last of `replicas` joins and leaves again, `rounds` times."""
    with Processes("resize") as job:
        ours = Ours(job)
        ours.start(replicas - 1)
        since = 0.0
        for _ in range(rounds):
            job.wait_whole(replicas - 1, steps=STEPS_BETWEEN, since=since)
            since = time.monotonic()
            ours.start()
            job.wait_whole(replicas, steps=STEPS_BETWEEN, since=since)
            since = time.monotonic()
            job.started[-1].send_signal(signal.SIGTERM)
        job.wait_whole(replicas - 1, steps=1, since=since)
        read = job.commits()
        return Pauses(
            join=commits.pauses(read, before=replicas - 1, after=replicas),
            leave=commits.pauses(read, before=replicas, after=replicas - 1),
            step_s={size: commits.step_s(read, size) for size in (replicas - 1, replicas)},
        )


if __name__ == "__main__":
    print(measure())
