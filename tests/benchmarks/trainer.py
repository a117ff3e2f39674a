"""`make bench-trainer`: what faults, changes of size and comforts cost, beside what others need.

    .venv/bin/python -m tests.benchmarks.trainer [--only kill,pause] [--rounds 5] [--json FILE]

Writes `.run/bench/trainer.json`; with `--only`, the other parts' figures stay. What couldn't be
measured is null, with its reason under `missing`, and the rest goes on. See
docs/guides/trainer/benchmarks.md for what each key means.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from tests.benchmarks import trainer_targets
from tests.integration.trainer.job import ROOT

T = TypeVar("T")
HERE = "tests.benchmarks"
REASON_CHARACTERS = 400


class Report:
    """Figures under keys such as `kill_downtime_ms.ours_standby`; `rounds` for who repeats."""

    def __init__(self, figures: dict[str, Any], rounds: int) -> None:
        self.figures, self.rounds = figures, rounds
        self.missing: dict[str, str] = figures.setdefault("missing", {})

    def put(self, key: str, value: Any) -> None:
        *groups, last = key.split(".")
        into = self.figures
        for name in groups:
            into = into.setdefault(name, {})
        into[last] = value

    def put_ms(self, key: str, seconds: Iterable[float | None]) -> None:
        """The median in milliseconds; least, most and how many under `spread_ms`. Nothing to
        take a median of is missing, never 0."""
        known = [1000 * each for each in seconds if each is not None]
        if not known:
            self.put(key, None)
            self.missing[key] = "no round gave a value"
            return
        self.missing.pop(key, None)
        self.put(key, round(statistics.median(known), 1))
        spread = {"least": round(min(known), 1), "most": round(max(known), 1), "n": len(known)}
        self.figures.setdefault("spread_ms", {})[key] = spread

    def measure(self, keys: Iterable[str], run: Callable[[], T]) -> T | None:
        """What `run` gives. If it can't, `keys` are null with the reason, and None is given."""
        keys = tuple(keys)
        try:
            found = run()
        except Exception as error:  # whatever it is, the other parts are still worth measuring
            reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS]
            print(f"  not measured: {', '.join(keys)}: {reason}", file=sys.stderr, flush=True)
            for key in keys:
                self.put(key, None)
                self.missing[key] = reason
            return None
        for key in keys:
            self.missing.pop(key, None)
        return found


def call(module: str, function: str, *arguments: Any, **named: Any) -> Any:
    """A part of the benchmark, imported only when its turn has come."""
    return getattr(importlib.import_module(f"{HERE}.{module}"), function)(*arguments, **named)


# ---- the parts ---------------------------------------------------------------------------------


def kill(report: Report) -> None:
    """SIGKILL of one of four replicas, under each runtime."""
    runs: dict[str, Callable[[], Any]] = {
        "ours_standby": lambda: call(
            "trainer_downtime", "ours", standby=True, rounds=report.rounds
        ),
        "ours_cold": lambda: call("trainer_downtime", "ours", standby=False, rounds=report.rounds),
        "torchrun": lambda: call("trainer_torchrun", "measure", report.rounds),
        "torchft": lambda: call("trainer_torchft", "kills", report.rounds),
    }
    for name, run in runs.items():
        found = report.measure([f"kill_downtime_ms.{name}"], run)
        if found is None:
            continue
        report.put_ms(f"kill_downtime_ms.{name}", [each.whole_s for each in found.kills])
        report.put_ms(f"kill_lost_ms.{name}", [each.lost_s for each in found.kills])
        report.put_ms(f"kill_step_ms.{name}", [found.step_s])
        if name != "torchrun":  # it restarts everybody: there are no survivors
            report.put_ms(f"kill_next_commit_ms.{name}", [each.next_s for each in found.kills])
        for stage, values in found.stages_ms.items():
            report.put(f"kill_stages_ms.{name}.{stage}", statistics.median(values))


def pause(report: Report) -> None:
    """A fourth replica joins and leaves."""
    keys = [f"resize_pause_ms.{name}" for name in ("join", "leave")]
    found = report.measure(
        [*keys, "step_ms"], lambda: call("trainer_resize", "measure", report.rounds)
    )
    if found is not None:
        report.put_ms(keys[0], found.join)
        report.put_ms(keys[1], found.leave)
        report.put_ms("step_ms", [max(found.step_s.values())])
    key = "resize_pause_ms.torchft_join"
    joins = report.measure([key], lambda: call("trainer_torchft", "joins", report.rounds))
    if joins is not None:
        report.put_ms(key, joins)


def throughput(report: Report) -> None:
    """Two replicas against two of plain DDP."""
    found = report.measure(["throughput_ratio_2"], lambda: call("trainer_throughput", "measure"))
    if found is not None:
        ours, ddp = found
        ratio = call("trainer_throughput", "ratio", ours, ddp)
        report.put("throughput_ratio_2", round(ratio, 4))
        report.put_ms("throughput_step_ms.ours", ours)
        report.put_ms("throughput_step_ms.ddp", ddp)


def overhead(report: Report) -> None:
    """What comforts add, as parts of a step of 200 ms."""
    parts: dict[str, Callable[[], float]] = {
        "redundancy": lambda: call("trainer_zero", "measure_redundancy"),
        "checksums": lambda: call("trainer_transfer", "measure_checksums"),
        "instrumentation": lambda: call("trainer_overhead", "measure_instruments")["ratio"],
    }
    for name, run in parts.items():
        key = f"overhead_ratio.{name}"
        ratio = report.measure([key], run)
        if ratio is not None:
            report.put(key, float(f"{ratio:.3g}"))


def groups(report: Report) -> None:
    """Group set-up against the default, by the number of ranks."""
    found = report.measure(["group_setup_ms"], lambda: call("trainer_groups", "measure"))
    if found is not None:
        report.put("group_setup_ms", {str(world): values for world, values in found.items()})


def data(report: Report) -> None:
    """The first batch after a recovery."""
    key = "first_batch_after_recovery_ms"
    found = report.measure([key], lambda: call("trainer_data", "measure_first_batch"))
    if found is not None:
        report.put(key, round(found, 3))


def transfer(report: Report) -> None:
    """State from a peer against the bare transport."""
    keys = ("state_gib_s", "transport_gib_s")
    found = report.measure(keys, lambda: call("trainer_transfer", "measure"))
    if found is not None:
        for key in keys:
            report.put(key, round(found[key], 3))


PARTS: dict[str, Callable[[Report], None]] = {
    "kill": kill, "pause": pause, "throughput": throughput, "overhead": overhead,
    "groups": groups, "data": data, "transfer": transfer,
}  # fmt: skip


# ---- the run -----------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Where and on what the figures hold; `load` is how many others wanted its cores before."""
    cpu = Path("/proc/cpuinfo").read_text().partition("model name")[2].splitlines()
    packages = ("torch", "numpy", "transformers", "xxhash")
    return {
        "processor": cpu[0].lstrip("\t :") if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {name: _version(name) for name in packages}
        | {"python": platform.python_version()},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def run(parts: Iterable[str], path: Path, rounds: int) -> dict[str, Any]:
    """Measure; the file is written after each part, so that an interrupt costs one."""
    figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    figures["machine"] = machine()
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in parts:
        print(f"Measuring: {name} ...", flush=True)
        began, load = time.monotonic(), os.getloadavg()[0]
        PARTS[name](Report(figures, rounds))
        took = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "load": round(load, 2),
                "seconds": round(time.monotonic() - began, 1)}  # fmt: skip
        figures.setdefault("parts", {})[name] = took
        figures["targets"] = trainer_targets.judge(figures)
        path.write_text(json.dumps(figures, indent=2) + "\n")
    return figures


def chosen(text: str) -> list[str]:
    """Parts in the order of the table."""
    names = {each for each in text.split(",") if each}
    if unknown := names - PARTS.keys():
        raise argparse.ArgumentTypeError(
            f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        )
    return [name for name in PARTS if name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=chosen, default=list(PARTS), metavar="PART,...")
    parser.add_argument("--rounds", type=int, default=5, help="kills and changes of size (5)")
    parser.add_argument("--json", type=Path, default=ROOT / ".run" / "bench" / "trainer.json")
    args = parser.parse_args()
    figures = run(args.only, args.json, args.rounds)
    print(json.dumps(figures, indent=2))
    print(trainer_targets.table(figures["targets"]))
    print(f"Written to {args.json}")


if __name__ == "__main__":
    main()
