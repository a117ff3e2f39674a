"""python -m scripts.bench_engine [--only planning|day|jct|clusters] [--quick]: measure the planner.

Prints the figures and writes `.run/bench/engine.json`: cycle_incremental_ms_p99, cycle_full_s,
rss_mib, growth (nodes -> ms), why_pending_ms_p99, day256_freed_used_ratio,
day256_inference_wait_s_max, jct_mean_s (load -> policy), flaps_per_day, clusters, machine,
versions.
`--quick`: the 160-job workloads at load 1.0 only, two of eight. Figures, not assertions.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from typing import Any

from scripts.bench import ROOT, machine, program

PARTS = ("planning", "day", "jct", "clusters")
#: the 160-job workloads at four loads under every policy take the longest: about half an hour
SECONDS = 7200.0
QUICK = ("--loads", "1.0", "--workloads", "2")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench_engine", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    path = ROOT / ".run" / "bench" / "engine.json"
    figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for part in options.only or PARTS:
        print(f"Measuring: {part} ...", flush=True)
        figures |= measure(part, options.quick)
        figures["machine"] = machine()
        figures["versions"] = {name: version(name) for name in ("numpy", "matplotlib")}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    print(f"Written to {path}")
    return 0


def measure(part: str, quick: bool) -> dict[str, Any]:
    if part == "planning":
        return program("bench_engine", timeout=SECONDS)
    extra = QUICK if quick and part == "jct" else ()
    return program("bench_simulation", "--part", part, *extra, timeout=SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
