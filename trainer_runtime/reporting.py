"""What the quorum's leader (rank 0) tells the control plane, and when."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

from trainer_runtime import wire
from trainer_runtime.instruments.flops import mfu
from trainer_runtime.instruments.gauge import Gauge
from trainer_runtime.instruments.phases import StepTimer
from trainer_runtime.instruments.stragglers import Stragglers
from trainer_runtime.protocol import Quorum
from trainer_runtime.rendezvous import Entered
from trainer_runtime.stages import StageClock
from trainer_runtime.telemetry import Telemetry

HEARTBEAT_S = 5.0


class Reporter:
    """One a replica; it reports only while `leads`.

    `timer` measures this replica's steps. `flops_per_token` and `peak_flops` (of one rank's device)
    give the utilisation, which is unknown without them. A replica has `ranks_per_replica` ranks.
    """

    def __init__(
        self, telemetry: Telemetry, *, total_steps: int | None, every_s: float,
        timer: StepTimer | None = None, stragglers: Stragglers | None = None,
        flops_per_token: float | None = None, peak_flops: float | None = None,
        ranks_per_replica: int = 1,
    ) -> None:  # fmt: skip
        self.telemetry = telemetry
        self.leads = False
        self.timer = timer
        self.stragglers = stragglers or Stragglers()
        self._total, self._every = total_steps, every_s
        self._flops, self._peak, self._ranks = flops_per_token, peak_flops, ranks_per_replica
        self._quorum: Quorum | None = None
        self._entered: Entered | None = None
        self._gauge = Gauge()
        self._beat_at = 0.0

    def entered(
        self, quorum: Quorum, *, leads: bool, attempt: str, step: int, least: int,
        before: int, pause_s: float | None, entered: Entered, planned: bool,
    ) -> None:  # fmt: skip
        """A quorum has formed. `before` is the size this replica trained in until then."""
        self.leads, self._quorum, self._entered = leads, quorum, entered
        self.telemetry.attempt = attempt
        self._reset()
        if not leads:
            return
        size = len(quorum.members)
        self.telemetry.report(
            wire.Membership, quorum=quorum.epoch, quorum_id=quorum.epoch,
            world_size=size * self._ranks, members=quorum.names, min_replicas=least, step=step,
            ranks_per_replica=self._ranks,
        )  # fmt: skip
        if planned and (quorum.joined or quorum.left) and before:
            self.telemetry.report(
                wire.Scale, quorum=quorum.epoch, quorum_id=quorum.epoch, from_replicas=before,
                to_replicas=size, step=step, joined=quorum.joined, left=quorum.left,
                pause_s=pause_s, bytes_moved=entered.bytes_moved,
                stages=_stages(entered, pause_s),
            )  # fmt: skip

    def waiting(self, *, epoch: int, members: list[str], need: int, step: int) -> None:
        """Below the minimum: this replica, the first of those that wait, says so."""
        self.telemetry.report(
            wire.Membership, quorum=epoch, quorum_id=epoch, world_size=0, members=tuple(members),
            state=wire.TrainerState.WAITING, min_replicas=need, step=step,
        )  # fmt: skip

    def waits_on(self, *, epoch: int, step: int) -> None:
        if time.monotonic() - self._beat_at >= HEARTBEAT_S:
            self._beat_at = time.monotonic()
            self.telemetry.report(
                wire.Heartbeat, quorum=epoch, quorum_id=epoch, step=step,
                state=wire.TrainerState.WAITING,
            )  # fmt: skip

    def committed(
        self, *, step: int, loss: float, samples: int, tokens: int | None, size: int, rate: float,
        grad_norm: float | None = None, bytes_moved: int | None = None,
        total_tokens: int | None = None, work: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """A step was committed; reported at most every `every_s`, with means since the last.

        `samples`, `tokens` and `bytes_moved` are this step's, `total_tokens` counts since training
        began, `size` is in replicas. `work` holds the seconds a sample that each replica's own
        work took in this step, by its name."""
        if not self.leads or self._quorum is None:
            return
        if work is not None:
            self._compare(step, work)
        self._gauge.add(samples, tokens, bytes_moved)
        if self._gauge.seconds < self._every and step != self._total:
            return
        rates = self._gauge.rates()
        times = self.timer.take() if self.timer is not None else None
        devices = size * self._ranks
        self.telemetry.report(
            wire.Step, quorum=self._quorum.epoch, quorum_id=self._quorum.epoch, step=step,
            total_steps=self._total, world_size=devices, global_batch_size=samples,
            loss=known(loss), learning_rate=rate, samples_per_s=rates.samples_per_s,
            tokens_per_s=rates.tokens_per_s, step_ms=rates.step_ms, grad_norm=known(grad_norm),
            mfu=mfu(rates.tokens_per_s, self._flops, devices=devices, peak=self._peak),
            phases_ms=times.phases_ms if times else None,
            data_wait_ms=times.data_wait_ms if times else None,
            tokens=total_tokens, bytes_moved=rates.bytes_moved,
        )  # fmt: skip
        self._gauge.restart()

    def _compare(self, step: int, work: Mapping[str, float]) -> None:
        assert self._quorum is not None
        for verdict in self.stragglers.observe(step, work):
            self.telemetry.report(
                wire.Straggler, quorum=self._quorum.epoch, replica=verdict.replica,
                z_score=verdict.z_score, work_ms=known(1000 * verdict.work_s),
                median_ms=known(1000 * verdict.median_s), cleared=verdict.cleared,
            )  # fmt: skip

    def recovered(self, clock: StageClock, *, step: int) -> None:
        if not self.leads or self._quorum is None:
            return
        self.telemetry.report(
            wire.Recovery, quorum=self._quorum.epoch, cause=clock.cause or "step_failed",
            started_at=time.time() - (time.monotonic() - clock.since), duration_s=clock.downtime,
            stages=clock.stages(), quorum_id=self._quorum.epoch, step=step,
            lost=tuple(clock.lost), joined=self._quorum.joined,
            repeated_steps=0 if clock.cause == "restart" else 1,
            detail=f"{clock.rounds} rounds" if clock.rounds > 1 else "",
            bytes_moved=self._entered.bytes_moved if self._entered else None,
            source=_source(self._quorum, resumed=clock.cause == "restart"),
        )  # fmt: skip
        # The pause is no throughput.
        self._reset()

    def checkpoint(
        self, *, epoch: int, step: int, path: Path | None, size: int | None = None,
        seconds: float | None = None, problem: str = "",
    ) -> None:  # fmt: skip
        self.telemetry.report(
            wire.Checkpoint, quorum=epoch, step=step, complete=not problem,
            path=str(path) if path else None, size_bytes=size, duration_s=seconds, detail=problem,
        )  # fmt: skip

    def _reset(self) -> None:
        self._gauge.restart()
        if self.timer is not None:
            self.timer.take()


def known(value: float | None) -> float | None:
    """None for what a report can't carry: a diverging job's numbers must not cost it its batch of
    reports."""
    fits = value is not None and math.isfinite(value) and abs(value) <= wire.MOST
    return value if fits else None


def _stages(entered: Entered, pause_s: float | None) -> tuple[wire.StageTime, ...]:
    """What a resize's pause, which ends now, was spent on: to agree and connect, then state."""
    if pause_s is None:
        return ()
    began = time.monotonic() - pause_s
    connected = max(0.0, entered.connected_at - began)
    restored = max(0.0, entered.restored_at - began - connected)
    return tuple(
        wire.StageTime(stage=stage, start_s=start, duration_s=spent)
        for stage, start, spent in (
            (wire.RecoveryStage.RENDEZVOUS, 0.0, connected),
            (wire.RecoveryStage.STATE_RESTORE, connected, restored),
        )
    )


def _source(quorum: Quorum, *, resumed: bool) -> str | None:
    """Whose state was taken over; None if all kept their own."""
    if resumed:
        return "checkpoint"
    copied = any(peer.copies for peer in quorum.members)
    names = {peer.id: peer.name for peer in quorum.members}
    return names.get(quorum.source) if copied and quorum.origin == "peer" else None
