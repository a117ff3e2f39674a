"""What a job committed, beside an undisturbed run of the same job on one replica."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.trainer.job import Job

EXACT = ("--exact", "--float32")
_runs: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {}


def fixed_size_run(folder: Path, steps: int, *arguments: str) -> dict[int, dict[str, Any]]:
    """By step, what the only replica logged. One run serves all tests of a session that ask for as
    many steps or fewer."""
    known = _runs.get(arguments, {})
    if len(known) < steps:
        folder = folder / "fixed"
        folder.mkdir()
        more = ("--steps", str(max(steps, 2 * len(known), 250)))
        with Job(folder, arguments=(*arguments, *more)) as job:
            run = job.start("x")
            assert run.wait() == 0, job.outputs()
            known = _runs[arguments] = {s["step"]: s for s in run.steps}
    return known


def check_history(job: Job, folder: Path) -> None:
    """Of a job with arguments EXACT: no step is missing, none was committed twice by a replica, no
    sample was lost or used twice, losses and weights are those of the fixed-size run to the bit."""
    from tests.integration.trainer.worker import SAMPLES
    from trainer_runtime.sampler import ElasticSampler

    committed = job.committed()
    assert list(committed) == list(range(1, len(committed) + 1))
    numbers = {name: [s["step"] for s in each.steps] for name, each in job.replicas.items()}
    for name, each in numbers.items():
        assert each == sorted(set(each)), f"{name} committed a step twice: {each}"
    want, sampler = fixed_size_run(folder, len(committed), *EXACT), ElasticSampler(SAMPLES, 12)
    for step, entries in committed.items():
        for entry in entries:
            for name in ("loss", "weights", "rate"):
                assert entry[name] == want[step][name], f"step {step}: {name} {entry}"
        batch = Counter(sampler.batch())  # across the end of an epoch an index may come twice
        used = Counter(index for entry in entries for index in entry["indices"])
        assert used <= batch, f"step {step}: {entries}"
        # A share isn't logged by who died between commit and log, or was cut off and copied a
        # later step; that it was used, the loss proves.
        silent = [
            name for name, each in numbers.items()
            if step not in each and each and each[0] < step
            and (each[-1] > step or job.replicas[name].code not in (None, 0))
        ]  # fmt: skip
        assert used == batch or silent, f"step {step}: {entries}"
        sampler.advance()
