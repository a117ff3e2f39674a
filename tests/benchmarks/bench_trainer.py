"""What a change of size and a lost replica cost those that stay. Figures, no assertions.

    .venv/bin/python -m tests.benchmarks.bench_trainer [--rounds 5] [--json FILE]

Two replicas of the example (a Llama of 1.3 million parameters on the standard library's source)
train as processes on this machine. Each round a third joins, leaves on SIGTERM, joins again and is
killed. The figures are what the trainer itself reports to a control plane: the pause from the end
of one step to the beginning of the next, and the downtime from the failure to the next commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.trainer.job import Job, Zygote, terminate, wait_for
from tests.unit.trainer.control_plane import ControlPlane
from trainer_runtime import wire

Kind = TypeVar("Kind", bound=wire.Message)
PATIENCE_S = 180.0


def of(control: ControlPlane, kind: type[Kind]) -> list[Kind]:
    return [m for e in list(control.taken) for m in e.messages if isinstance(m, kind)]


def told(control: ControlPlane, kind: type[Kind], what: str, fits: Callable[[Kind], bool]) -> Kind:
    """The first report of this kind that fits."""
    return wait_for(what, lambda: [m for m in of(control, kind) if fits(m)], PATIENCE_S)[0]


def one_round(job: Job, control: ControlPlane, number: int) -> None:
    leaves, dies = f"leaves-{number}", f"dies-{number}"
    job.start(leaves)
    told(control, wire.Scale, f"{leaves} joined", lambda m: leaves in m.joined)
    terminate(job.replicas[leaves])
    told(control, wire.Scale, f"{leaves} left", lambda m: leaves in m.left)
    job.start(dies)
    joined = told(control, wire.Scale, f"{dies} joined", lambda m: dies in m.joined)
    told(control, wire.Step, "a step of three", lambda m: m.quorum_id == joined.quorum_id)
    job.replicas[dies].signal(signal.SIGKILL)
    told(control, wire.Recovery, f"{dies} lost", lambda m: dies in m.lost)


def run(rounds: int, folder: Path) -> ControlPlane:
    """The reports of a run with this many rounds."""
    control = ControlPlane()
    environment = {
        "CONCERTINA_URL": control.url, "CONCERTINA_TOKEN": "t", "CONCERTINA_JOB": "bench",
        "CONCERTINA_CACHE_DIR": str(folder / "cache"),
    }  # fmt: skip
    try:
        Zygote.one("llama")
        with Job(folder, environment=environment, program="llama") as job:
            first = [job.start("a"), job.start("b")]
            told(control, wire.Step, "steps of two", lambda m: m.world_size == 2)
            for number in range(rounds):
                one_round(job, control, number)
            seen = len(of(control, wire.Step))
            wait_for("steps after it", lambda: len(of(control, wire.Step)) >= seen + 5, PATIENCE_S)
            terminate(*first)
    finally:
        Zygote.end()
        control.close()
    return control


def figures(control: ControlPlane) -> dict[str, Any]:
    def median_ms(seconds: list[float]) -> float | None:
        return round(1000 * statistics.median(seconds), 1) if seconds else None

    scales = [m for m in of(control, wire.Scale) if m.pause_s is not None]
    pauses = {
        "join": [m.pause_s or 0.0 for m in scales if m.joined and m.from_replicas > 1],
        "leave": [m.pause_s or 0.0 for m in scales if m.left and m.to_replicas > 1],
    }
    kills = [m for m in of(control, wire.Recovery) if m.lost]
    stages = {
        stage.value: median_ms([s.duration_s for m in kills for s in m.stages if s.stage is stage])
        for stage in wire.RecoveryStage
    }
    steps = {
        size: [m.step_ms / 1000 for m in of(control, wire.Step)
               if m.world_size == size and m.step_ms is not None]
        for size in (1, 2, 3)
    }  # fmt: skip
    return {
        "resize_pause_ms": median_ms(pauses["join"] + pauses["leave"]),
        "kill_downtime_ms": median_ms([m.duration_s for m in kills]),
        "step_ms": median_ms(steps[2]),
        "trainer": {
            "resize_pause_ms": {name: median_ms(values) for name, values in pauses.items()},
            "kill_stages_ms": stages,
            "step_ms": {str(size): median_ms(values) for size, values in steps.items()},
            "kills": len(kills),
            "resizes": len(pauses["join"] + pauses["leave"]),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
            "versions": {name: version(name) for name in ("torch", "transformers")}
            | {"python": platform.python_version()},
        },
    }


def measure(rounds: int = 5) -> dict[str, Any]:
    """Medians over `rounds`; keys as in `.run/bench/chain.json`, details under `trainer`."""
    with tempfile.TemporaryDirectory(prefix="concertina-bench-") as folder:
        return figures(run(rounds, Path(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    text = json.dumps(measure(args.rounds), indent=2)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
