"""The loss curve and the use of samples don't depend on how many replicas there were when."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.trainer.job import Job, check_batches, check_losses, terminate


def fixed_size_run(folder: Path, steps: int, *arguments: str) -> dict[int, dict[str, float]]:
    """Losses and weights of the same job on two replicas from the first step to the last."""
    folder.mkdir()
    with Job(folder, min_replicas=2, arguments=(*arguments, "--steps", str(steps))) as job:
        runs = [job.start("x"), job.start("y")]
        assert [run.wait() for run in runs] == [0, 0], job.outputs()
        assert {s["world"] for s in runs[0].steps} == {2}
        return {s["step"]: s for s in runs[0].steps}


def change_sizes(job: Job) -> None:
    """1 -> 3 -> 2 -> 4 replicas; the 2 come from a kill -9 in the middle of a step."""
    job.prepare("a", "b", "d", "e", PACE_S="0.01")
    job.prepare("c", PACE_S="0.01", STRIKE="KILL@load:8")
    job.admit("a")
    job.wait_world(1, beyond=5)
    job.admit("b", "c")
    assert job.replicas["c"].wait() == -signal.SIGKILL
    assert job.replicas["c"].steps[-1]["world"] == 3
    step = job.wait_world(2, beyond=job.replicas["c"].last + 5)
    job.admit("d", "e")
    job.wait_world(4, beyond=step + 5)
    alive = [job.replicas[name] for name in "abde"]
    assert terminate(*alive) == [0, 0, 0, 0], job.outputs()


def test_sizes_and_a_kill_leave_the_losses_of_a_fixed_size_run(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        change_sizes(job)
        committed = job.committed()
        sizes = [entries[0]["world"] for entries in committed.values()]
        order = [n for i, n in enumerate(sizes) if i == 0 or sizes[i - 1] != n]
        # Two that join or leave together may come a step after one another.
        before, after = order.index(3), len(order) - order[::-1].index(4)
        assert order[:before] in ([1], [1, 2])
        assert order[before + 1 : after] in ([2, 4], [2, 3, 4]), order
        check_batches(committed)
        assert job.left_behind("a") == {"threads": [], "tasks": [], "sockets": [], "shared": []}
    want = fixed_size_run(tmp_path / "fixed", len(committed))
    check_losses(committed, {step: s["loss"] for step, s in want.items()}, relative=1e-5)
    last = committed[len(committed)][0]
    assert abs(last["weights"] - want[len(committed)]["weights"]) < 1e-6
    assert last["rate"] == want[len(committed)]["rate"]


def test_exact_mode_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    arguments = ("--exact", "--float32")
    with Job(tmp_path, arguments=arguments) as job:
        change_sizes(job)
        committed = job.committed()
        check_batches(committed)
    want = fixed_size_run(tmp_path / "fixed", len(committed), *arguments)
    for step, entries in committed.items():
        for entry in entries:
            assert (entry["loss"], entry["weights"]) == (
                want[step]["loss"], want[step]["weights"],
            ), f"step {step}"  # fmt: skip
