"""Faults of replicas and of the authority: who is left goes on, with the right state."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.integration.trainer.job import (
    Job,
    check_agreement,
    check_batches,
    terminate,
    wait_for,
)


def started(job: Job, *names: str) -> int:
    """Replicas that train together; a step that all of them committed."""
    job.prepare(*names, PACE_S="0.01")
    job.admit(*names)
    return job.wait_world(len(names))


def test_stopped_replica_is_fenced_out_and_comes_back(tmp_path: Path) -> None:
    with Job(tmp_path, silence_s=2.0) as job:
        step = started(job, "a", "b", "c")
        c = job.replicas["c"]
        c.signal(signal.SIGSTOP)
        step = job.wait_step_of("a", world=2, beyond=step)
        stopped_at = c.last
        c.signal(signal.SIGCONT)
        wait_for("c was told", lambda: " given up: " in c.said())
        job.wait_world(3, beyond=step)
        committed = job.committed()
        # What c committed while it was out would be here, with another share or another loss.
        check_batches(committed)
        check_agreement(job)
        alone = [s["step"] for s in c.steps if s["step"] > stopped_at and s["world"] != 3]
        assert alone == []
        recovered = re.findall(r"recovered \((\w+)\)", job.replicas["a"].said())
        assert recovered == ["replica_hung"]
        assert terminate(*job.replicas.values()) == [0, 0, 0]


def test_two_kills_at_once(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        step = started(job, "a", "b", "c", "d")
        for name in "bd":
            job.replicas[name].signal(signal.SIGKILL)
        step = job.wait_world(2, beyond=step)
        job.wait_world(2, beyond=step + 10)
        check_agreement(job, "a", "c")
        assert terminate(job.replicas["a"], job.replicas["c"]) == [0, 0]


def test_loss_of_the_leader(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        step = started(job, "a", "b", "c")
        leader = next(r for r in job.replicas.values() if r.steps[-1]["rank"] == 0)
        leader.signal(signal.SIGKILL)
        rest = [r for r in job.replicas.values() if r is not leader]
        step = job.wait_world(2, beyond=step)
        assert sorted(r.steps[-1]["rank"] for r in rest) == [0, 1]
        assert terminate(*rest) == [0, 0]
        # Steps never went back.
        for replica in rest:
            numbers = [s["step"] for s in replica.steps]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_exception_in_the_script(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.prepare("a", PACE_S="0.01")
        job.prepare("b", PACE_S="0.01", STRIKE="RAISE*@load:5")
        job.admit("a", "b")
        assert job.replicas["b"].wait() == 1
        assert "the script's own fault" in job.replicas["b"].said()
        job.wait_world(1, beyond=job.replicas["b"].last)
        check_batches(job.committed())
        assert terminate(job.replicas["a"]) == [0]


@pytest.mark.parametrize("stalls", ["a", "b"])
def test_standing_still_in_a_step_is_a_hang(tmp_path: Path, stalls: str) -> None:
    """Its heartbeats go on, its training thread doesn't."""
    with Job(tmp_path, progress_s=2.0) as job:
        hold = job.holding(stalls)
        for name in "ab":
            job.prepare(name, PACE_S="0.01", STRIKE="HOLD@load:5" if name == stalls else "")
        job.admit("a", "b")
        other = "b" if stalls == "a" else "a"
        wait_for(
            "the other goes on alone",
            lambda: [s for s in job.replicas[other].steps if s["world"] == 1 and s["step"] > 10],
        )
        hold.unlink()
        step = job.wait_world(2)
        job.wait_world(2, beyond=step + 3)
        check_batches(job.committed())
        assert terminate(*job.replicas.values()) == [0, 0]


def test_authority_restarts(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        step = started(job, "a", "b")
        epoch = job.replicas["a"].steps[-1]["epoch"]
        assert job.authority is not None
        job.authority.signal(signal.SIGKILL)
        job.authority.wait()
        # Nobody needs it while nothing changes.
        step = job.wait_world(2, beyond=step + 20)
        assert job.replicas["a"].steps[-1]["epoch"] == epoch
        job.start_authority()
        wait_for("a higher epoch", lambda: job.replicas["a"].steps[-1]["epoch"] > epoch)
        job.prepare("c", PACE_S="0.01")
        job.admit("c")
        job.wait_world(3, beyond=step)
        check_batches(job.committed())
        check_agreement(job)
        assert "fresh start" not in job.replicas["c"].said()
        assert terminate(*job.replicas.values()) == [0, 0, 0]


def test_member_lost_while_the_authority_was_gone(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        step = started(job, "a", "b", "c")
        assert job.authority is not None
        job.authority.signal(signal.SIGKILL)
        job.authority.wait()
        job.replicas["b"].signal(signal.SIGKILL)
        job.replicas["b"].wait()
        job.start_authority()
        step = job.wait_world(2, beyond=step)
        job.wait_world(2, beyond=step + 5)
        check_agreement(job, "a", "c")
        assert terminate(job.replicas["a"], job.replicas["c"]) == [0, 0]
