"""What instrumentation adds to a step. Figures, no assertions.

    .venv/bin/python -m tests.benchmarks.trainer_overhead

The time of everything that the leader does for a step is measured by itself, over many steps: a
difference of two 200 ms steps would be smaller than their noise.
"""

from __future__ import annotations

import json
import statistics
import time

from trainer_runtime.instruments.logrules import LogWatch, parse_rules
from trainer_runtime.instruments.phases import StepPhase, StepTimer
from trainer_runtime.protocol import Peer, Quorum
from trainer_runtime.rendezvous import Entered
from trainer_runtime.reporting import Reporter
from trainer_runtime.telemetry import Telemetry, TelemetryOptions

STEP_S = 0.2
RULES = [
    {"name": "loss", "pattern": r"loss[ =:]+(\S+)", "above": 20, "recur_every_s": 60},
    {"name": "step", "pattern": r"step (\d+)", "expect_within_s": 600},
    {"name": "cuda", "pattern": "CUDA error|NCCL WARN"},
    {"name": "oom", "pattern": "out of memory"},
    {"name": "grad", "pattern": r"grad_norm[ =:]+(\S+)", "above": 1000},
]
LINE = "[replica-0] step 1234 loss 2.3456 grad_norm 0.71 lr 3.0e-4 tokens/s 81234"


def measure_instruments(
    *, replicas: int = 4, micro_batches: int = 8, lines: int = 1, steps: int = 2000
) -> dict[str, float]:
    """`ratio`: the leader's added time a step over a step of 200 ms (`worst_ratio`: of its slowest
    hundredth); `us`: microseconds a step, of which `log_us` are for `lines` lines of output."""
    names = tuple(f"replica-{number}" for number in range(replicas))
    timer, watch = StepTimer(), LogWatch(parse_rules(RULES))
    # With a job and an address that refuses: messages are made and queued as in a run, and one a
    # step, which is more than any run has.
    telemetry = Telemetry(TelemetryOptions(url="http://127.0.0.1:1", job="bench"), lambda _: None)
    reporter = Reporter(
        telemetry, total_steps=None, every_s=0.0, timer=timer, flops_per_token=1e9, peak_flops=1e12
    )
    quorum = Quorum(
        epoch=1, members=tuple(Peer(n, n, 0, False) for n in names), source=names[0],
        origin="peer", store_port=1, prefix="", last_step=0,
    )  # fmt: skip
    reporter.entered(
        quorum, leads=True, attempt="a", step=0, least=1, before=0, pause_s=None,
        entered=Entered(0.0, 0.0), planned=False,
    )  # fmt: skip
    work = {name: 0.1 + number / 1e5 for number, name in enumerate(names)}
    spent, logs = [], []
    for step in range(1, steps + 1):
        began = time.perf_counter()
        _marks(timer, micro_batches)
        reporter.committed(
            step=step, loss=1.0, samples=64, tokens=640, size=replicas, rate=0.1, grad_norm=1.0,
            bytes_moved=1, total_tokens=step, work=work,
        )  # fmt: skip
        before_logs = time.perf_counter()
        for _ in range(lines):
            watch.feed("replica-0", LINE, step * STEP_S)
        watch.tick(step * STEP_S)
        ended = time.perf_counter()
        spent.append(ended - began)
        logs.append(ended - before_logs)
    telemetry.close(0.0)
    mean = statistics.fmean(spent)
    return {
        "ratio": mean / STEP_S,
        "worst_ratio": statistics.quantiles(spent, n=100)[-1] / STEP_S,
        "us": 1e6 * mean,
        "log_us": 1e6 * statistics.fmean(logs),
    }


def _marks(timer: StepTimer, micro_batches: int) -> None:
    timer.begin()
    for _ in range(micro_batches):
        timer.phase(StepPhase.DATA)
        timer.phase(StepPhase.FORWARD_BACKWARD)
    _ = timer.own_work_s
    for phase in (StepPhase.REDUCE, StepPhase.COMMIT, StepPhase.OPTIMIZER, StepPhase.EXCHANGE):
        timer.phase(phase)
    timer.end()


if __name__ == "__main__":
    for size in (4, 64, 1000):
        print(json.dumps({"replicas": size} | measure_instruments(replicas=size)))
