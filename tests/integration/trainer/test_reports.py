"""What a control plane hears of a job that grows, loses a replica, waits and ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.integration.trainer.job import Job, check_agreement, terminate, wait_for
from tests.unit.trainer.control_plane import ControlPlane
from trainer_runtime import wire

Kind = TypeVar("Kind", bound=wire.Message)


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    control = ControlPlane()
    yield control
    control.close()


def of(control: ControlPlane, kind: type[Kind]) -> list[Kind]:
    return [m for e in control.taken for m in e.messages if isinstance(m, kind)]


def test_reports_of_a_run(tmp_path: Path, plane: ControlPlane) -> None:
    environment = {
        "CONCERTINA_URL": plane.url, "CONCERTINA_TOKEN": "t", "CONCERTINA_JOB": "the-job",
        "CONCERTINA_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
    }  # fmt: skip
    with Job(tmp_path, environment=environment) as job:
        job.prepare("a", "b", "c", PACE_S="0.02")
        job.admit("a")
        job.wait_world(1)
        job.admit("b")
        step = job.wait_world(2)
        job.admit("c")
        step = job.wait_world(3, beyond=step)
        job.replicas["b"].signal(signal.SIGKILL)
        job.wait_world(2, beyond=step)
        wait_for("the recovery is told", lambda: of(plane, wire.Recovery))
        assert terminate(job.replicas["c"]) == [0]
        wait_for("the leave is told", lambda: of(plane, wire.Scale)[-1].left == ("c",))
        assert terminate(job.replicas["a"]) == [0]
        last = job.replicas["a"].last

    assert {(e.job, len(e.attempt)) for e in plane.taken} == {("the-job", 16)}
    assert len({e.attempt for e in plane.taken}) == 1
    sequences = [m.seq for e in plane.taken for m in e.messages]
    assert sequences == sorted(set(sequences))
    assert [m.members for m in of(plane, wire.Membership)] == [
        ("a",), ("a", "b"), ("a", "b", "c"), ("a", "c"), ("a",)
    ]  # fmt: skip
    scales = [(s.from_replicas, s.to_replicas, s.joined, s.left) for s in of(plane, wire.Scale)]
    assert scales == [
        (1, 2, ("b",), ()), (2, 3, ("c",), ()), (2, 1, (), ("c",))
    ]  # fmt: skip
    assert all(s.pause_s is not None and 0 < s.pause_s < 10 for s in of(plane, wire.Scale))
    (recovery,) = of(plane, wire.Recovery)
    assert (recovery.cause, recovery.lost, recovery.repeated_steps) == ("replica_lost", ("b",), 1)
    assert [s.stage for s in recovery.stages] == list(wire.RecoveryStage)
    assert sum(s.duration_s for s in recovery.stages) == pytest.approx(recovery.duration_s)
    assert 0 < recovery.duration_s < 20
    steps = of(plane, wire.Step)
    assert [s.step for s in steps] == sorted({s.step for s in steps})
    assert {s.global_batch_size for s in steps} == {12}
    assert {s.world_size for s in steps} == {1, 2, 3}
    assert all(s.samples_per_s and s.step_ms and s.loss is not None for s in steps)
    assert [(c.step, c.complete) for c in of(plane, wire.Checkpoint)] == [(last, True)]


def test_the_minimum_and_a_restart_are_told(tmp_path: Path, plane: ControlPlane) -> None:
    environment = {
        "CONCERTINA_URL": plane.url, "CONCERTINA_TOKEN": "t", "CONCERTINA_JOB": "the-job",
        "CONCERTINA_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
    }  # fmt: skip
    with Job(tmp_path, min_replicas=2, environment=environment) as job:
        job.prepare("a", "b", "c", "d", PACE_S="0.02")
        job.admit("a", "b")
        job.wait_world(2)
        job.replicas["b"].signal(signal.SIGKILL)
        wait_for(
            "the wait is told",
            lambda: [m for m in of(plane, wire.Membership) if m.state is wire.TrainerState.WAITING],
        )
        waits = of(plane, wire.Membership)[-1]
        assert (waits.world_size, waits.members, waits.min_replicas) == (0, ("a",), 2)
        assert terminate(job.replicas["a"]) == [0]
        job.admit("c", "d")
        job.wait_world(2)
        wait_for("the restart is told", lambda: of(plane, wire.Recovery))
        (restart,) = of(plane, wire.Recovery)
        assert restart.cause == "restart"
        assert restart.step == job.replicas["a"].last + 1
        assert len({e.attempt for e in plane.taken}) == 2
        assert terminate(job.replicas["c"], job.replicas["d"]) == [0, 0]


def test_training_goes_on_while_the_control_plane_refuses(
    tmp_path: Path, plane: ControlPlane
) -> None:
    plane.codes = [401, 500, 400, 503] * 1000
    environment = {
        "CONCERTINA_URL": plane.url, "CONCERTINA_TOKEN": "t", "CONCERTINA_JOB": "the-job"
    }  # fmt: skip
    with Job(tmp_path, environment=environment) as job:
        job.prepare("a", "b", PACE_S="0.01")
        job.admit("a", "b")
        step = job.wait_world(2)
        job.wait_world(2, beyond=step + 20)
        check_agreement(job)
        assert "telemetry: control plane answered 401" in job.outputs()
        assert terminate(*job.replicas.values()) == [0, 0]
        assert plane.taken == []
