"""The launcher and the control plane: drains, sizes, scripts that aren't elastic, no plane."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.integration.trainer.agent_plane import AgentPlane
from tests.integration.trainer.job import wait_for
from tests.integration.trainer.launcher import Launcher
from trainer_runtime.agent import agent as codes


def test_a_drain_and_new_sizes_are_done_and_acknowledged(tmp_path: Path) -> None:
    with (
        AgentPlane() as plane,
        Launcher(tmp_path, "--replicas", "1:2", **plane.environment) as run,
    ):
        run.wait_world(2)
        wait_for("known as elastic", lambda: plane.attempts and plane.attempts[-1]["elastic"])
        names = [each["name"] for each in plane.attempts[-1]["replicas"]]
        plane.want(1, "drain", replicas=[names[0]])
        plane.wait_ack(1, "done")
        step = run.last()
        assert f"[{names[0]}] left after step" in run.said()
        run.wait_world(1, beyond=step)
        assert [each["name"] for each in plane.attempts[-1]["replicas"]] == names[1:]
        plane.want(2, "resize", to=2)
        plane.wait_ack(2, "done")
        step = run.wait_world(2, beyond=step)
        plane.want(3, "resize", to=3)
        plane.wait_ack(3, "refused", "out_of_range")
        plane.want(4, "drain", replicas=["nobody"])
        plane.wait_ack(4, "refused", "unknown_replica")
        plane.want(5, "resize", to=1)
        plane.wait_ack(5, "done")
        run.wait_world(1, beyond=step)
        assert "given up" not in run.said()
        plane.want(6, "drain")
        assert run.wait() == codes.OK
        assert (6, "done", "") in plane.acks


def test_a_script_that_ignores_elasticity_is_said_before_anything_is_stopped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plain.py"
    path.write_text("import signal\nprint('up', flush=True)\nwhile True: signal.pause()\n")
    with (
        AgentPlane() as plane,
        Launcher(
            tmp_path, "--elastic-timeout", "0.5", "--preload", "json", script=(str(path),),
            **plane.environment,
        ) as run,
    ):  # fmt: skip
        run.wait_said("up")
        plane.want(1, "drain")
        plane.wait_ack(1, "refused", "not_elastic")
        assert "Nothing was stopped" in plane.details[-1]
        assert (1, "accepted", "") not in plane.acks
        os.kill(run.rank_pids(1)[0], 0)
        wait_for("told", lambda: plane.attempts[-1]["elastic"] is False)


def test_without_its_control_plane_training_goes_on(tmp_path: Path) -> None:
    with socket.socket() as nobody:  # bound, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        script = ("tests/integration/trainer/worker.py", "--log", str(tmp_path / "steps.log"))
        with Launcher(
            tmp_path, script=(*script, "--steps", "30"), CONCERTINA_URL=url, CONCERTINA_TOKEN="t"
        ) as run:
            assert run.wait() == codes.OK
            assert run.last() == 30
            assert run.said().count("[agent] control plane not reached") == 1
