"""What the quorum's leader (rank 0) tells the control plane, and when."""

from __future__ import annotations

import time
from pathlib import Path

from trainer_runtime import wire
from trainer_runtime.protocol import Quorum
from trainer_runtime.rendezvous import Entered
from trainer_runtime.stages import StageClock
from trainer_runtime.telemetry import Telemetry

HEARTBEAT_S = 5.0


class Reporter:
    """One a replica; it reports only while `leads`."""

    def __init__(self, telemetry: Telemetry, *, total_steps: int | None, every_s: float) -> None:
        self.telemetry = telemetry
        self.leads = False
        self._total, self._every = total_steps, every_s
        self._quorum: Quorum | None = None
        self._since = time.monotonic()
        self._samples = self._tokens = self._steps = 0
        self._size = 0
        self._beat_at = 0.0

    def entered(
        self, quorum: Quorum, *, leads: bool, attempt: str, step: int, least: int,
        before: int, pause_s: float | None, entered: Entered, planned: bool,
    ) -> None:  # fmt: skip
        """A quorum has formed. `before` is the size this replica trained in until then."""
        self.leads, self._quorum = leads, quorum
        self.telemetry.attempt = attempt
        self._reset()
        if not leads:
            return
        size = len(quorum.members)
        self.telemetry.report(
            wire.Membership, quorum=quorum.epoch, quorum_id=quorum.epoch, world_size=size,
            members=quorum.names, min_replicas=least, step=step,
        )  # fmt: skip
        if planned and (quorum.joined or quorum.left) and before:
            self.telemetry.report(
                wire.Scale, quorum=quorum.epoch, quorum_id=quorum.epoch, from_replicas=before,
                to_replicas=size, step=step, joined=quorum.joined, left=quorum.left,
                pause_s=pause_s, bytes_moved=entered.bytes_moved,
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
        self, *, step: int, loss: float, samples: int, tokens: int | None, size: int, rate: float
    ) -> None:
        """A step was committed; reported at most every `every_s`, with means since the last."""
        if not self.leads or self._quorum is None:
            return
        self._steps += 1
        self._samples += samples
        self._tokens += tokens or 0
        now = time.monotonic()
        spent = now - self._since
        if spent < self._every and step != self._total:
            return
        self.telemetry.report(
            wire.Step, quorum=self._quorum.epoch, quorum_id=self._quorum.epoch, step=step,
            total_steps=self._total, world_size=size, global_batch_size=samples, loss=loss,
            learning_rate=rate, samples_per_s=self._samples / spent if spent else None,
            tokens_per_s=self._tokens / spent if self._tokens and spent else None,
            step_ms=1000 * spent / self._steps,
        )  # fmt: skip
        self._reset()

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
        self._since = time.monotonic()
        self._steps = self._samples = self._tokens = 0
