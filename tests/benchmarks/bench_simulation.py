"""What the planner is worth on days that nobody here made up. Figures, no assertions.

    .venv/bin/python -m tests.benchmarks.bench_simulation [--part day|jct|clusters] [--loads 1.0]
        [--workloads 8] [--processes 2] [--json FILE]

day: `day-256`. jct: mean completion times of the 160-job workloads of Pollux (OSDI 2021) under each
policy, by the published rules. clusters: the ElasticFlow clusters (ASPLOS 2023) and openb (Alibaba,
2023): utilization, idle accelerator-hours and reclaim time, ours beside fixed sizes. The traces are
read from ../shared/traces (CONCERTINA_TRACES names another folder).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from controlplane.simulator.cli import simulate
from controlplane.simulator.compare import against
from controlplane.simulator.fields import Fields
from controlplane.simulator.quick import trace_scenario
from controlplane.simulator.scenario import load, read

ROOT = Path(__file__).resolve().parents[2]
TRACES = Path(os.environ.get("CONCERTINA_TRACES", ROOT.parent / "shared" / "traces"))
LOADS = ("0.5", "1.0", "1.5", "2.0")
#: the planner knows measured throughput by size, of jobs that haven't started too (declared)
COMPLETION = "objective=completion_time,curves=known,declared=on"
#: by name in the figures: what is compared on the 160-job workloads
POLICIES = {
    "las": "las",
    "fixed_known": f"ours:{COMPLETION},remaining=known",
    "fixed_unknown": f"ours:{COMPLETION},remaining=unknown",
    "scaled": f"ours:{COMPLETION},remaining=known,batch=scale",
    "scaled_unknown": f"ours:{COMPLETION},remaining=unknown,batch=scale",
    "fixed_known_learned": "ours:objective=completion_time,curves=observed,remaining=known",
    "fair_share": "ours:objective=fair_share,curves=known",
    "fifo_backfill": "fifo_backfill",
    "preempt_whole": "preempt_whole",
}
#: published means: least attained service (Tiresias), and Pollux
PUBLISHED = {
    "las": {"0.5": 2091, "1.0": 4038, "1.5": 6182, "2.0": 10040},
    "pollux": {"0.5": 1534, "1.0": 2751, "1.5": 3685, "2.0": 5289},
}
#: the unfair load: no job's completion time should be more than 3 times its fixed-size one
UNFAIR_LOAD = "1.0"

Run = tuple[str, str, int]  # policy's name, load, workload


def run_pollux(run: Run) -> tuple[Run, dict[str, Any]]:
    name, load_, number = run
    path = TRACES / "pollux-osdi21" / f"workloads-{load_}" / f"workload-{number}.csv"
    found = simulate(trace_scenario(f"pollux:{path}", 16, 4), POLICIES[name])
    return run, {
        "jct": {row["name"]: row["jct_s"] for row in found["per_job"]},
        "resizes": found["resizes"],
        "hours": found["simulated_s"] / 3600,
    }


def jct(
    loads: Sequence[str], workloads: int, names: Sequence[str], processes: int
) -> dict[str, Any]:
    runs = [(n, x, i) for x in loads for n in names for i in range(1, workloads + 1)]
    found = dict(_mapped(run_pollux, runs, processes))
    figures: dict[str, Any] = {"jct_mean_s": {}, "resizes_per_job": {}, "flaps_per_day_jct": {}}
    for x in loads:
        by_name = {n: [found[n, x, i] for i in range(1, workloads + 1)] for n in names}
        figures["jct_mean_s"][x] = {n: round(_mean(rs)) for n, rs in by_name.items()}
        figures["resizes_per_job"][x] = {n: round(_resizes(rs), 2) for n, rs in by_name.items()}
        figures["flaps_per_day_jct"][x] = {n: round(_flaps(rs), 2) for n, rs in by_name.items()}
    figures["published_jct_mean_s"] = PUBLISHED
    if UNFAIR_LOAD in loads and "las" in names:
        figures["unfair"] = {
            n: _unfair(found, n, workloads) for n in names if n.startswith(("fixed", "scaled"))
        }
    return figures


def _mean(results: Iterable[dict[str, Any]]) -> float:
    return statistics.fmean(t for result in results for t in result["jct"].values())


def _resizes(results: Sequence[dict[str, Any]]) -> float:
    jobs = sum(len(result["jct"]) for result in results)
    return sum(result["resizes"]["n"] for result in results) / jobs


def _flaps(results: Sequence[dict[str, Any]]) -> float:
    hours = sum(result["hours"] for result in results)
    return sum(result["resizes"]["flaps"] for result in results) / (hours / 24)


def _unfair(found: dict[Run, dict[str, Any]], name: str, workloads: int) -> dict[str, Any]:
    """Jobs that took more than three times as long as at their fixed size (las)."""
    beyond = []
    worst = 0.0
    for i in range(1, workloads + 1):
        times = found[name, UNFAIR_LOAD, i]["jct"]
        beside = against(times, found["las", UNFAIR_LOAD, i]["jct"])
        worst = max(worst, beside["ratio"]["max"])
        beyond += [f"workload-{i}/{one['job']} x{one['ratio']}" for one in beside["unfair"]]
    return {"beyond_3x": len(beyond), "worst": round(worst, 2), "which": beyond[:20]}


def day() -> dict[str, Any]:
    found = simulate(load("day-256"), "ours")
    return {
        "day256_freed_used_ratio": found["capacity"]["freed_used_ratio"],
        "day256_inference_wait_s_max": found["reclaim"]["wait_s"]["max"],
        "flaps_per_day": found["resizes"]["flaps_per_day"],
    }


# -- clusters --------------------------------------------------------------------------------

#: of each ElasticFlow cluster: the first of its three busiest days on end, and nodes of 8 that
#: hold about two thirds of what those ask for
BUSY = {
    "cluster01": (37, 8),
    "cluster02": (24, 24),
    "cluster03": (54, 48),
    "cluster04": (20, 96),
    "cluster05": (20, 8),
    "cluster06": (27, 32),
    "cluster07": (16, 48),
    "cluster08": (17, 16),
    "cluster09": (49, 8),
    "cluster10": (55, 3),
}
BESIDE = ("ours:objective=completion_time", "ours:objective=fair_share", "fifo_backfill")
#: training beside openb's serving: two jobs that would take most of the cluster
BESIDE_OPENB = [
    {
        "name": f"llm-{i}",
        "accelerators": 1024,
        "accelerators_per_pod": 1,
        "min_replicas": 128,
        "max_replicas": 4096,
        "work": 1e12,
    }
    for i in range(2)
]


def cluster_document(name: str) -> dict[str, Any]:
    if name == "openb":
        # its 8,152 pods of 145 days within three: the serving load of a busy cluster
        trace = {"kind": "openb", "path": str(TRACES / "openb-2023"), "arrival_scale": 0.02}
        return {
            "horizon_h": 4,
            "traces": [trace | {"training": False}],
            "jobs": BESIDE_OPENB,
            "costs": {"resize_pause_s": 5.0, "leave_s": 20.0, "pod_start_s": 15.0},
        }
    from_day, nodes = BUSY[name]
    path = TRACES / "elasticflow-asplos23" / f"{name}.csv"
    trace = {"kind": "elasticflow", "path": str(path), "from_day": from_day, "days": 3}
    return {
        "pools": [{"name": "node", "count": nodes, "accelerators": 8}],
        "traces": [trace],
        "cycle": {"period_s": 300},
        "costs": {"resize_pause_s": 30.0},
    }


def run_cluster(run: tuple[str, str]) -> tuple[tuple[str, str], dict[str, Any]]:
    name, policy = run
    scenario = read(Fields(cluster_document(name), "", name), ROOT, name)
    found = simulate(scenario, policy)
    return run, {
        "utilization": found["capacity"]["utilization"],
        "idle_accelerator_h": found["capacity"]["idle_h"],
        "jct_mean_s": found["jct_s"]["mean"],
        "queueing_mean_s": found["queueing_s"]["mean"],
        "reclaim_wait_s": found["reclaim"]["wait_s"],
        "flaps_per_day": found["resizes"]["flaps_per_day"],
    }


def clusters(processes: int) -> dict[str, Any]:
    runs = [(name, policy) for name in (*BUSY, "openb") for policy in BESIDE]
    figures: dict[str, Any] = {}
    for (name, policy), result in _mapped(run_cluster, runs, processes):
        figures.setdefault(name, {})[policy] = result
    return {"clusters": figures}


def _mapped(run: Callable[[Any], Any], runs: Sequence[Any], processes: int) -> Iterable[Any]:
    with ProcessPoolExecutor(processes) as pool:
        for number, result in enumerate(pool.map(run, runs), 1):
            print(f"\r{number}/{len(runs)} runs", end="", flush=True)
            yield result
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=("day", "jct", "clusters"), action="append")
    parser.add_argument("--loads", nargs="+", default=list(LOADS), choices=LOADS)
    parser.add_argument("--workloads", type=int, default=8, choices=range(1, 9))
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    parts = options.part or ["day", "jct", "clusters"]
    began, figures = time.monotonic(), {}
    if "day" in parts:
        figures |= day()
    if "jct" in parts:
        figures |= jct(options.loads, options.workloads, options.policies, options.processes)
    if "clusters" in parts:
        figures |= clusters(options.processes)
    figures["took_s"] = round(time.monotonic() - began)
    text = json.dumps(figures, indent=2)
    print(text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
