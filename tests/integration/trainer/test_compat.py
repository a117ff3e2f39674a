"""A script that only saves and returns, under the launcher: it ends as asked, goes on smaller."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from tests.integration.trainer.agent_plane import AgentPlane
from tests.integration.trainer.launcher import Launcher
from trainer_runtime.agent import agent as codes

_MODULE = ("-m", "trainer_runtime.examples.save_and_return")


def _saved(run: Launcher, ranks: int) -> int:
    """The step after which all ranks saved, which is the same."""
    said = re.findall(rf"rank \d of {ranks} saved after step (\d+)", run.said())
    assert len(said) == ranks, run.said()
    assert len(set(said)) == 1, run.said()
    return int(said[0])


def test_it_saves_on_every_rank_after_the_same_step_and_goes_on_with_fewer(tmp_path: Path) -> None:
    script = (*_MODULE, str(tmp_path / "run.pt"))
    two = ("--replicas", "1", "--nproc-per-node", "2", "--standbys", "0")
    with AgentPlane() as plane, Launcher(tmp_path, *two, script=script, **plane.environment) as run:
        run.wait_said("begins after step 0", 2)
        # Refused as `not_elastic` if the ranks had no connection to the authority.
        plane.want(1, "drain")
        plane.wait_ack(1, "accepted")
        plane.wait_ack(1, "done")
        assert run.wait() == codes.OK
        step = _saved(run, 2)
        assert step > 0

    one = ("--replicas", "1", "--standbys", "0")
    with Launcher(tmp_path, *one, script=script) as run:
        run.wait_said(f"rank 0 of 1 begins after step {step}")
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == codes.OK
        assert _saved(run, 1) > step
