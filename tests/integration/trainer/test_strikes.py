"""Faults at each place of a step and of a join, in exact mode: afterwards the job's history is to
the bit that of an undisturbed run. One job takes a whole row of faults, one after the other."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.trainer.history import EXACT, check_history
from tests.integration.trainer.job import Job, Running, terminate, wait_for

IN_A_STEP = (
    "load", "forward", "backward", "reduce", "gate", "optimizer", "half", "applied", "commit",
    "between",
)  # fmt: skip
IN_A_JOIN = ("connect", "connected", "receiving", "restore")


class Crew:
    """Three replicas that train; who falls out is replaced by the next of those prepared."""

    def __init__(self, job: Job, spare: int) -> None:
        self.job = job
        self.names: Iterator[str] = iter([f"r{number:02d}" for number in range(3 + spare)])
        self.alive = [next(self.names) for _ in range(3)]
        job.prepare(*self.alive, PACE_S="0.005")
        job.admit(*self.alive)
        self.step = job.wait_world(3)

    def by_rank(self, rank: int) -> Running:
        every = [self.job.replicas[name] for name in self.alive]
        return sorted(every, key=lambda replica: replica.steps[-1]["rank"])[rank]

    def join(self, **environment: str) -> Running:
        name = next(self.names)
        self.job.prepare(name, PACE_S="0.005", **environment)
        self.job.admit(name)
        self.alive.append(name)
        return self.job.replicas[name]

    def gone(self, replica: Running, code: int) -> None:
        """It ended so; the others train on without it."""
        assert replica.wait() == code, self.job.outputs()
        self.alive.remove(replica.name)
        self.whole()

    def whole(self) -> None:
        """All that are left train together."""
        self.step = self.job.wait_world(len(self.alive), beyond=self.step)

    def end(self) -> None:
        assert terminate(*(self.job.replicas[n] for n in self.alive)) == [0] * len(self.alive)


@pytest.mark.parametrize("rank", [0, -1], ids=["leader", "last"])
def test_killed_at_each_place_of_a_step(tmp_path: Path, rank: int) -> None:
    with Job(tmp_path, arguments=EXACT) as job:
        crew = Crew(job, spare=len(IN_A_STEP))
        for place in IN_A_STEP:
            victim = crew.by_rank(rank)
            job.strike(victim.name, f"KILL@{place}")
            crew.gone(victim, -signal.SIGKILL)
            assert f"struck: KILL at {place}" in victim.said()
            crew.join()
            crew.whole()
        crew.end()
    check_history(job, tmp_path)


def test_killed_at_each_place_of_a_join(tmp_path: Path) -> None:
    with Job(tmp_path, arguments=EXACT) as job:
        crew = Crew(job, spare=2 * len(IN_A_JOIN))
        for place in IN_A_JOIN:
            crew.gone(crew.join(STRIKE=f"KILL@{place}"), -signal.SIGKILL)
        for place in ("sending", "connect", "connected", "parked"):
            victim = crew.by_rank(0)
            job.strike(victim.name, f"KILL@{place}")
            crew.join()
            crew.gone(victim, -signal.SIGKILL)
        crew.end()
    check_history(job, tmp_path)


def test_stopped_at_each_place_comes_back(tmp_path: Path) -> None:
    places = ("reduce", "gate", "half", "applied", "commit", "between")
    with Job(tmp_path, silence_s=1.0, arguments=EXACT) as job:
        crew = Crew(job, spare=2)
        for number, place in enumerate(places):
            victim = crew.by_rank((0, -1)[number % 2])
            others = [name for name in crew.alive if name != victim.name]
            job.strike(victim.name, f"STOP@{place}")
            step = job.wait_step_of(others[0], world=2, beyond=crew.step)
            crew.step = job.wait_step_of(others[1], world=2, beyond=step)
            victim.signal(signal.SIGCONT)
            crew.whole()
        crew.end()
    check_history(job, tmp_path)


def test_asked_to_leave_at_each_place(tmp_path: Path) -> None:
    with Job(tmp_path, arguments=EXACT) as job:
        crew = Crew(job, spare=len(IN_A_STEP) + len(IN_A_JOIN))
        for number, place in enumerate(IN_A_STEP):
            victim = crew.by_rank((0, -1)[number % 2])
            job.strike(victim.name, f"TERM@{place}")
            crew.gone(victim, 0)
            crew.join()
            crew.whole()
        for place in IN_A_JOIN:
            crew.gone(crew.join(STRIKE=f"TERM@{place}"), 0)
        assert "recovered" not in job.outputs()
        crew.end()
    check_history(job, tmp_path)


def test_failures_of_the_script_at_each_place_are_tried_again(tmp_path: Path) -> None:
    """Each once; no process ends, and what was half applied comes from a peer."""
    strikes = [
        f"RAISE@{place}" for place in IN_A_STEP if place not in ("reduce", "gate", "between")
    ]
    with Job(tmp_path, arguments=EXACT) as job:
        crew = Crew(job, spare=0)
        for number, strike in enumerate([*strikes, "OOM@forward"]):
            victim = job.replicas[crew.alive[number % 3]]
            job.strike(victim.name, strike)
            word = "own fault in " + strike[6:] if strike in strikes else "can't allocate memory"
            wait_for(f"{strike} struck", lambda v=victim, w=word: w in v.said())
            crew.whole()
        assert "giving up" not in job.outputs()
        crew.end()
    check_history(job, tmp_path)
