"""What the leader tells, from what it is given."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from trainer_runtime import wire
from trainer_runtime.instruments.phases import StepPhase, StepTimer
from trainer_runtime.protocol import Peer, Quorum
from trainer_runtime.rendezvous import Entered
from trainer_runtime.reporting import Reporter
from trainer_runtime.stages import StageClock
from trainer_runtime.telemetry import Telemetry, TelemetryOptions

NAMES = ("a", "b", "c", "d")


class Kept(Telemetry):
    """Keeps messages instead of sending them; each must be one that the wire carries."""

    def __init__(self) -> None:
        super().__init__(TelemetryOptions())
        self.said: list[wire.Message] = []

    def report(self, kind: type[wire.Message], *, quorum: int, **values: Any) -> None:
        message = kind(seq=len(self.said), at=1.0, **values)
        wire.encode(wire.Envelope(job="j", attempt="a", sent_at=1.0, messages=(message,)))
        self.said.append(message)


def quorum(copies: str = "", origin: str = "peer") -> Quorum:
    return Quorum(
        epoch=7, members=tuple(Peer(f"{n}#1", n, 5, n in copies) for n in NAMES), source="a#1",
        origin=origin, store_port=1, prefix="p", last_step=5, joined=tuple(copies),
    )  # fmt: skip


def enter(reporter: Reporter, which: Quorum, **changes: Any) -> None:
    now = time.monotonic()
    usual = {
        "leads": True, "attempt": "x", "step": 5, "least": 1, "before": 3, "pause_s": 4.0,
        "entered": Entered(now - 1.5, now - 0.5, bytes_moved=99), "planned": True,
    }  # fmt: skip
    reporter.entered(which, **usual | changes)


def commit(reporter: Reporter, step: int, **changes: Any) -> None:
    usual = {"loss": 1.5, "samples": 64, "tokens": 640, "size": 4, "rate": 0.1}
    reporter.committed(step=step, **usual | changes)


def make(**changes: Any) -> tuple[Reporter, Kept]:
    kept = Kept()
    return Reporter(kept, total_steps=None, **{"every_s": 0.0} | changes), kept


def test_a_step_with_all_that_is_measured() -> None:
    timer = StepTimer()
    reporter, kept = make(
        timer=timer, flops_per_token=3e9, peak_flops=1e12, ranks_per_replica=2
    )  # fmt: skip
    enter(reporter, quorum())
    timer.begin()
    timer.phase(StepPhase.DATA)
    timer.phase(StepPhase.REDUCE)
    timer.end()
    commit(reporter, 6, grad_norm=0.5, bytes_moved=10, total_tokens=3840)
    membership, step = kept.said
    assert isinstance(membership, wire.Membership)
    assert isinstance(step, wire.Step)
    assert (membership.world_size, membership.ranks_per_replica) == (8, 2)
    assert (step.world_size, step.grad_norm, step.tokens, step.bytes_moved) == (8, 0.5, 3840, 10)
    assert step.tokens_per_s is not None
    assert step.mfu == step.tokens_per_s * 3e9 / (8 * 1e12)
    assert step.phases_ms is not None
    assert {"data", "reduce"} <= step.phases_ms.keys()
    assert step.data_wait_ms == step.phases_ms["data"]


def test_what_is_not_measured_is_unknown() -> None:
    reporter, kept = make()
    enter(reporter, quorum())
    commit(reporter, 6, tokens=None)
    step = kept.said[-1]
    assert isinstance(step, wire.Step)
    assert (step.mfu, step.phases_ms, step.data_wait_ms, step.tokens) == (None,) * 4
    assert (step.tokens_per_s, step.grad_norm, step.bytes_moved) == (None,) * 3


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e300, -1e16])
def test_numbers_of_a_diverging_job_do_not_cost_it_its_reports(number: float) -> None:
    reporter, kept = make()
    enter(reporter, quorum())
    commit(reporter, 6, loss=number, grad_norm=abs(number))
    step = kept.said[-1]
    assert isinstance(step, wire.Step)
    assert (step.step, step.loss, step.grad_norm) == (6, None, None)


def test_steps_between_two_reports_are_summed() -> None:
    reporter, kept = make(every_s=1e9)
    reporter._total = 8
    enter(reporter, quorum())
    for step in (6, 7, 8):
        commit(reporter, step, bytes_moved=10)
    (step,) = [m for m in kept.said if isinstance(m, wire.Step)]
    assert (step.step, step.bytes_moved) == (8, 30)


def test_a_straggler_is_told_when_it_becomes_one_and_when_it_is_none() -> None:
    reporter, kept = make(every_s=1e9)
    enter(reporter, quorum())
    slow, even = dict.fromkeys(NAMES, 0.1) | {"c": 0.25}, dict.fromkeys(NAMES, 0.1)
    for step in range(6, 36):
        commit(reporter, step, work=slow)
    for step in range(36, 66):
        commit(reporter, step, work=even)
    told = [m for m in kept.said if isinstance(m, wire.Straggler)]
    assert [(m.replica, m.work_ms, m.median_ms, m.cleared) for m in told] == [
        ("c", 250.0, 100.0, False), ("c", 100.0, 100.0, True)
    ]  # fmt: skip


def test_only_the_leader_tells() -> None:
    reporter, kept = make()
    enter(reporter, quorum(), leads=False)
    for step in range(6, 36):
        commit(reporter, step, work=dict.fromkeys(NAMES, 0.1) | {"c": 9.0})
    assert kept.said == []


def test_a_resize_says_what_its_pause_was_spent_on() -> None:
    reporter, kept = make()
    enter(reporter, quorum(copies="d"))
    scale = kept.said[-1]
    assert isinstance(scale, wire.Scale)
    stages = [(s.stage.value, s.start_s, s.duration_s) for s in scale.stages]
    near = pytest.approx
    assert stages == [
        ("rendezvous", 0.0, near(2.5, abs=0.1)),
        ("state_restore", near(2.5, abs=0.1), near(1.0, abs=0.01)),
    ]
    assert scale.bytes_moved == 99


@pytest.mark.parametrize(
    ("copies", "origin", "cause", "want"),
    [
        ("d", "peer", "replica_lost", "a"),
        ("", "peer", "replica_hung", None),  # all kept their own
        ("bcd", "start", "restart", "checkpoint"),
    ],
)
def test_a_recovery_names_its_source(
    copies: str, origin: str, cause: str, want: str | None
) -> None:
    reporter, kept = make()
    enter(reporter, quorum(copies, origin), planned=False)
    reporter.recovered(StageClock(time.monotonic(), cause=cause), step=6)
    recovery = kept.said[-1]
    assert isinstance(recovery, wire.Recovery)
    assert (recovery.cause, recovery.source, recovery.bytes_moved) == (cause, want, 99)
