"""How long planning takes. Figures, no assertions.

    .venv/bin/python -m tests.benchmarks.bench_engine [--nodes 10000] [--cycles 200] [--json FILE]

A cluster at rest, full but for a little, with demand that waits (`big_cluster`): one cycle from
scratch, then cycles after a few events each; growth into idle nodes by size of the cluster; "why
pending" asked of a plan; memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane.engine.explain import why
from controlplane.engine.plan import Plan, Planner, plan
from controlplane.engine.policy import PolicySet
from controlplane.engine.snapshot import ClusterSnapshot
from tests.benchmarks.big_cluster import an_event, at_rest, big_cluster
from tests.builders import NOW

SIZES = (100, 1_000, 10_000)


def timed(run: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else values[0]


def cycles(snapshot: ClusterSnapshot, policies: PolicySet, count: int) -> dict[str, Any]:
    """From scratch, and after a few events each. A collector that stops the world for what never
    dies is no part of planning: a worker freezes it too (workers/celery.py)."""
    gc.collect()
    gc.freeze()
    full = [timed(lambda: Planner().plan(snapshot, policies, NOW)) for _ in range(3)]
    planner = Planner()
    planner.plan(snapshot, policies, NOW)
    took: list[float] = []
    for step in range(1, count + 1):
        snapshot = an_event(snapshot, step)
        took.append(timed(lambda s=snapshot, t=step: planner.plan(s, policies, NOW + t)))
    return {
        "cycle_full_s": round(min(full) / 1000, 3),
        "cycle_incremental_ms_p50": round(statistics.median(took), 1),
        "cycle_incremental_ms_p99": round(p99(took), 1),
    }


def growth(sizes: tuple[int, ...]) -> dict[str, float]:
    """Milliseconds from scratch with a third of the nodes idle and every job growing, by nodes."""
    found = {}
    for nodes in sizes:
        snapshot, policies = big_cluster(
            nodes, jobs=nodes // 5, inelastic=nodes * 2, pending=nodes // 20, free=0.3
        )
        found[str(nodes)] = round(min(timed(lambda: plan(snapshot, policies, NOW))  # noqa: B023
                                      for _ in range(3)), 1)  # fmt: skip
    return found


def questions(made: Plan) -> float:
    names = [demand.workload_or_pod for demand in made.pending]
    names += [str(decision.workload) for decision in made.decisions]
    return p99([timed(lambda n=name: why(made, n)) for name in names])


def measure(nodes: int, count: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"growth": growth(tuple(n for n in SIZES if n <= nodes))}
    snapshot, policies = big_cluster(
        nodes, jobs=nodes // 5, inelastic=nodes * 2, pending=nodes // 20
    )
    snapshot = at_rest(snapshot, policies)
    figures.update(cycles(snapshot, policies, count))
    figures["why_pending_ms_p99"] = round(questions(plan(snapshot, policies, NOW)), 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures["rss_mib"] = round(peak / (1024 if sys.platform != "darwin" else 1024**2))
    figures["machine"] = f"{platform.machine()}, Python {platform.python_version()}"
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    figures = measure(options.nodes, options.cycles)
    text = json.dumps(figures, indent=2)
    print(text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
