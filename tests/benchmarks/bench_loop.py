"""event_to_patch_ms: from the moment that a pending pod exists to the patch that makes room for it.

    python -m tests.benchmarks.bench_loop [--rounds 30] [--json FILE]

The whole chain as processes on this machine: sandbox, watcher, worker, Valkey, SQLite. Each round
creates one pod of priority 1000 on a cluster that an elastic job fills, and waits for the job's
object to carry a new command of ours; then the pod goes and the job grows back. The time includes
the sandbox's scheduler, the watch, coalescing (30 ms), planning, two transactions and the patch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from controlplane.cluster.client import connect
from controlplane.cluster.interface import ClusterAddress, EventType
from controlplane.cluster.names import COMMAND
from controlplane.cluster.resources import JOBS
from tests.manifests import (
    make_job_object,
    make_pod_object,
    make_pod_spec,
    make_priority_class_object,
)
from tests.stack import Stack, wait_until

POLICY = {
    "name": "quick",
    "min_replicas": 2,
    "max_replicas": 32,
    "replica_increment_step": 1,
    "scaling_timeout": 0.0,
    "cooldown": 0.0,
    "scale_up_snooze": 0.0,
    "min_gain": 0.0,
}


class Patches:
    """Follows the job with a watch of its own; notes when each new command of ours appeared."""

    def __init__(self, stack: Stack) -> None:
        self._cluster = connect(ClusterAddress("bench", str(stack.kubeconfig)))
        self.seen: dict[str, float] = {}
        self.size = 0
        start = self._cluster.list(JOBS).resource_version
        self._stream = self._cluster.watch(JOBS, resource_version=start, timeout_s=3600)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        for event in self._stream:
            now = time.perf_counter()
            if event.type is EventType.BOOKMARK:
                continue
            notes = event.object["metadata"].get("annotations") or {}
            self.size = int(event.object["spec"]["parallelism"])
            if COMMAND in notes:
                self.seen.setdefault(notes[COMMAND], now)

    def close(self) -> None:
        self._stream.stop()
        self._cluster.close()


def measure(rounds: int) -> list[float]:
    """Milliseconds of each round."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-loop-") as folder,
        Stack(Path(folder), policies=(POLICY,)) as stack,
    ):
        classes = make_priority_class_object("serving", 1000)
        stack.create("scheduling.k8s.io/v1", None, "priorityclasses", classes)
        spec = make_pod_spec(8, restartPolicy="Never", terminationGracePeriodSeconds=0)
        job = make_job_object("filler", "default", parallelism=2, policy="quick", pod_spec=spec)
        patches = Patches(stack)
        stack.create("batch/v1", "default", "jobs", job)
        try:
            return [one_round(stack, patches, number) for number in range(rounds)]
        finally:
            patches.close()


def one_round(stack: Stack, patches: Patches, number: int) -> float:
    wait_until(
        lambda: patches.size == 32 and settled(stack), "the job to fill the cluster", timeout_s=60
    )
    known = set(patches.seen)
    spec = make_pod_spec(8, priorityClassName="serving", terminationGracePeriodSeconds=0)
    name = f"urgent-{number}"
    pod = make_pod_object(name, "default", spec=spec)
    pod["spec"].pop("priority")  # admission sets it from the class
    began = time.perf_counter()
    stack.create("v1", "default", "pods", pod)
    fresh = wait_until(lambda: set(patches.seen) - known, "a patch", every_s=0.001)
    took = (min(patches.seen[command] for command in fresh) - began) * 1000
    wait_until(lambda: is_running(stack, name), "the pod to run")
    stack.delete("v1", "default", "pods", name)
    return took


def settled(stack: Stack) -> bool:
    """No command in flight, and the 32 pods run."""
    live = stack.rows(
        "select 1 from decisions_command where state in ('pending', 'applying', 'applied')"
    )
    if live:
        return False
    pods = stack.items("v1", "default", "pods")
    return len(pods) == 32 and all(p["status"].get("phase") == "Running" for p in pods)


def is_running(stack: Stack, name: str) -> bool:
    return stack.get("v1", "default", "pods", name)["status"].get("phase") == "Running"


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="merge the figures into this file")
    options = parser.parse_args()
    times = measure(options.rounds)
    figures: dict[str, Any] = {
        "event_to_patch_ms": {
            "p50": round(statistics.median(times), 1),
            "p99": round(percentile(times, 0.99), 1),
            "n": len(times),
        }
    }
    print(json.dumps(figures))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        known = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**known, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
