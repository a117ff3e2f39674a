"""What a SIGKILL of one replica costs. Figures, no assertions.

    .venv/bin/python -m tests.benchmarks.trainer_downtime

Ours under `concertina-run`, with a warm standby and without one; measured from outside by the log
of commits (trainer_commits.py). The stages are what the survivors say of their recovery.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.benchmarks import trainer_commits as commits
from tests.benchmarks.trainer_commits import Kill
from tests.benchmarks.trainer_processes import BenchError, Processes

REPLICAS, ROUNDS = 4, 5
STEPS_BETWEEN = 6
_RECOVERED = re.compile(r"recovered \(replica_lost\) at step \d+ in [\d.]+ s: (.*)")
_STAGE = re.compile(r"(\w+) (\d+) ms")


@dataclass(slots=True)
class Kills:
    """Of one runtime: what each kill cost, its usual step, and by stage the milliseconds that each
    survivor of each kill told."""

    kills: list[Kill]
    step_s: float
    stages_ms: dict[str, list[float]] = field(default_factory=dict)


def ours(*, standby: bool, rounds: int = ROUNDS, replicas: int = REPLICAS) -> Kills:
    """`standby`: a warm one waits at each kill; else the agent forks a new process, which builds
    its model first."""
    options = ("--standbys", "1", "--warm-script") if standby else ("--standbys", "0")
    with Processes("ours") as job:

        def ready() -> bool:
            """One has parked for each replacement so far, and one more."""
            said = job.said()
            return not standby or said.count("parked: warm") > said.count("takes its place")

        job.start(
            "-m", "trainer_runtime.agent.run", "--replicas", f"1:{replicas}", *options,
            "--max-restarts", str(rounds * replicas), "-m", "tests.benchmarks.trainer_job",
            "--commits", str(job.log),
        )  # fmt: skip
        found = kill_in_turn(job, rounds, replicas, ready)
        found.stages_ms = stages(job.said())
        return found


def kill_in_turn(
    job: Processes,
    rounds: int,
    replicas: int,
    ready: Callable[[], bool] = lambda: True,
    replace: Callable[[int], None] = lambda victim: None,
) -> Kills:
    """Kill one of `replicas` again and again, each time when they are whole and have made some
    steps. `replace` is called right after, for a runtime that doesn't start replacements itself."""
    found: list[Kill] = []
    victim, since = 0, 0.0
    for _ in range(rounds):
        job.wait_whole(replicas, steps=STEPS_BETWEEN, since=since, without=victim)
        job.wait_for("a standby", ready)
        victim, since = job.kill_one()
        replace(victim)
        job.wait_whole(replicas, steps=0, since=since, without=victim)
        found.append(commits.kill(job.commits(), since, victim, replicas))
    usual = commits.step_s(job.commits(), replicas)
    if usual is None:
        raise BenchError(f"no two steps of {replicas} replicas\n{job.said()[-2000:]}")
    return Kills(found, usual)


def stages(said: str) -> dict[str, list[float]]:
    """By stage, milliseconds of each recovery from a lost replica in what replicas printed."""
    found: dict[str, list[float]] = {}
    for text in _RECOVERED.findall(said):
        for stage, milliseconds in _STAGE.findall(text):
            found.setdefault(stage, []).append(float(milliseconds))
    return found


def main() -> None:
    for standby in (True, False):
        print("standby" if standby else "cold", ours(standby=standby))


if __name__ == "__main__":
    main()
