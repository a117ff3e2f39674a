"""How long one planning cycle takes. Figures, no assertions.

    .venv/bin/python -m tests.benchmarks.bench_engine [--rounds 5] [--json FILE]

Three states of a cluster of 8-accelerator nodes: full and at rest, idle with every elastic job
growing, and full with inelastic demand that reclaims.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from controlplane.engine.accounting import account
from controlplane.engine.fingerprint import digest
from controlplane.engine.plan import plan
from controlplane.engine.snapshot import ClusterSnapshot, Pod, Workload
from tests.builders import (
    NOW,
    make_key,
    make_nodes,
    make_pod,
    make_policies,
    make_policy,
    make_replicas,
    make_snapshot,
    make_workload,
)

#: nodes that one elastic job holds when the cluster is full
NODES_A_JOB = 6
POLICIES = make_policies(make_policy(max_replicas=12))


def cluster(nodes: int, held: float, waiting: float = 0.0) -> ClusterSnapshot:
    """Elastic jobs of three priorities hold a share of the nodes; inelastic pods of eight
    accelerators wait for another share."""
    machines = make_nodes(nodes)
    jobs: list[Workload] = []
    pods: list[Pod] = []
    for i in range(max(1, nodes // NODES_A_JOB)):
        mine = machines[i * NODES_A_JOB : (i + 1) * NODES_A_JOB]
        places = [node.name for node in mine[: max(1, round(held * NODES_A_JOB))]]
        job = make_workload(f"job-{i:04}", granted=len(places), priority=100 * (1 + i % 3))
        jobs.append(job)
        pods.extend(make_replicas(job, places))
    infer = make_key("infer", kind="Deployment")
    pods.extend(
        make_pod(f"infer-{i:04}", priority=1000, workload=infer)
        for i in range(round(waiting * nodes))
    )
    return make_snapshot(machines, pods, jobs)


def timed(run: Callable[[], object], rounds: int) -> dict[str, float]:
    """Milliseconds: median and slowest of the rounds."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        took.append((time.perf_counter() - began) * 1000)
    return {"p50_ms": round(statistics.median(took), 1), "max_ms": round(max(took), 1)}


def measure(nodes: int, rounds: int) -> dict[str, dict[str, float]]:
    full, idle = cluster(nodes, 1.0), cluster(nodes, 0.3)
    reclaim = cluster(nodes, 1.0, waiting=0.4)
    return {
        "rest": timed(lambda: plan(full, POLICIES, NOW), rounds),
        "grow": timed(lambda: plan(idle, POLICIES, NOW), rounds),
        "reclaim": timed(lambda: plan(reclaim, POLICIES, NOW), rounds),
        "of which digest": timed(lambda: digest(full, POLICIES, NOW), rounds),
        "of which accounting": timed(lambda: account(full), rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="+", default=[36, 1000])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    found = {}
    for nodes in options.nodes:
        found[str(nodes)] = measure(nodes, options.rounds)
        for name, figures in found[str(nodes)].items():
            print(
                f"{nodes:6} nodes  {name:20} p50 {figures['p50_ms']:9.1f} ms"
                f"  max {figures['max_ms']:9.1f} ms"
            )
    if options.json:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": machine, "plan": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
