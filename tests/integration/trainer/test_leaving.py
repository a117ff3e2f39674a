"""SIGTERM, the minimum, checkpoints, and a job without its authority."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.trainer.job import (
    Job,
    check_batches,
    check_losses,
    terminate,
    wait_for,
)


def test_sigterm_drains_at_a_step_boundary(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.prepare("a", "b", "c", PACE_S="0.01")
        job.admit("a", "b", "c")
        job.wait_world(3)
        assert terminate(job.replicas["b"]) == [0]
        step = job.wait_world(2, beyond=job.replicas["b"].last)
        assert "recovered" not in job.replicas["a"].said()
        assert "given up" not in job.replicas["a"].said()
        assert job.left_behind("b") == {"threads": [], "tasks": [], "sockets": [], "shared": []}
        job.wait_world(2, beyond=step + 3)
        check_batches(job.committed())
        assert terminate(job.replicas["a"], job.replicas["c"]) == [0, 0]


def test_sigterm_before_joining_ends_at_once(tmp_path: Path) -> None:
    with Job(tmp_path, min_replicas=2) as job:
        job.prepare("a")
        job.admit("a")
        wait_for("a waits", lambda: "waits in place" in job.replicas["a"].said())
        assert terminate(job.replicas["a"]) == [0]
        assert job.replicas["a"].steps == []


def test_below_the_minimum_state_waits_in_memory(tmp_path: Path) -> None:
    with Job(tmp_path, min_replicas=2) as job:
        job.prepare("a", "b", "c", PACE_S="0.01")
        job.admit("a", "b")
        job.wait_world(2)
        job.replicas["b"].signal(signal.SIGKILL)
        wait_for("a waits", lambda: "waits in place" in job.replicas["a"].said())
        assert "1 of at least 2 replicas" in job.replicas["a"].said()
        step = job.replicas["a"].last
        job.admit("c")
        job.wait_world(2, beyond=step)
        assert job.replicas["c"].steps[0]["step"] == step + 1
        assert terminate(job.replicas["a"], job.replicas["c"]) == [0, 0]


def test_last_one_leaving_writes_what_a_new_start_resumes_from(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with Job(tmp_path, environment={"CONCERTINA_CHECKPOINT_DIR": str(folder)}) as job:
        job.prepare("a", "b", "c", PACE_S="0.01")
        job.admit("a", "b")
        job.wait_world(2, beyond=5)
        assert terminate(job.replicas["a"], job.replicas["b"]) == [0, 0]
        step = max(job.replicas["a"].last, job.replicas["b"].last)
        assert [each.name for each in folder.iterdir()] == [f"step-{step:012d}.state"]
        # The authority knows of the job; a new one would not: both resume.
        job.admit("c")
        job.wait_world(1, beyond=step + 5)
        assert f"resumed at step {step} from" in job.replicas["c"].said()
        assert job.replicas["c"].steps[0]["step"] == step + 1
        assert terminate(job.replicas["c"]) == [0]
        committed = job.committed()
        check_batches(committed)
    want_folder = tmp_path / "want"
    want_folder.mkdir()
    with Job(want_folder, arguments=("--steps", str(len(committed)))) as job:
        assert job.start("x").wait() == 0
        want = {s["step"]: s["loss"] for s in job.replicas["x"].steps}
    check_losses(committed, want, relative=1e-10)


def test_all_killed_without_a_checkpoint_says_what_is_lost(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.prepare("a", "b", PACE_S="0.01")
        job.admit("a")
        job.wait_world(1, beyond=30)
        job.replicas["a"].signal(signal.SIGKILL)
        job.replicas["a"].wait()
        job.admit("b")
        job.wait_world(1)
        assert "committed steps are lost, there is no checkpoint" in job.replicas["b"].said()
        assert job.replicas["b"].steps[0]["step"] == 1


def test_leaving_without_an_authority_keeps_the_state(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with Job(tmp_path, environment={"CONCERTINA_CHECKPOINT_DIR": str(folder)}) as job:
        job.prepare("a", PACE_S="0.01")
        job.admit("a")
        job.wait_world(1, beyond=5)
        assert job.authority is not None
        job.authority.signal(signal.SIGKILL)
        job.authority.wait()
        assert terminate(job.replicas["a"]) == [0]
        assert list(folder.glob("*.state")) == [
            folder / f"step-{job.replicas['a'].last:012d}.state"
        ]
