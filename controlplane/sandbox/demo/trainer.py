"""What the containers of a simulated training job would do and report. Pure: no clock, no I/O.

Throughput grows with replicas^exponent, loss falls as a power law of the steps, both with noise;
a change of membership pauses training, a lost replica costs a recovery with its stages.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from controlplane.sandbox.demo.manifests import Simulated
from trainer_runtime import wire

REPORT_SECONDS = 2.0
HEARTBEAT_SECONDS = 10.0
_LOST_STAGES = (  # stage, typical seconds
    (wire.RecoveryStage.DETECT, 0.6),
    (wire.RecoveryStage.ABORT, 0.3),
    (wire.RecoveryStage.RENDEZVOUS, 0.9),
    (wire.RecoveryStage.STATE_RESTORE, 0.2),
    (wire.RecoveryStage.DATA_LOADER, 0.1),
    (wire.RecoveryStage.FIRST_STEP, 1.1),
)


@dataclass(frozen=True, slots=True)
class Member:
    """One replica's pod. `leaving`: it was told to go; `index`: its completion index."""

    index: int
    pod: str
    ready: bool
    leaving: bool


@dataclass(slots=True)
class Progress:
    """What outlives the demo's process, as a checkpoint would."""

    attempt: str
    seq: int = 0
    quorum_id: int = 0
    step: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "attempt": self.attempt,
            "seq": self.seq,
            "quorum_id": self.quorum_id,
            "step": self.step,
        }


@dataclass(slots=True)
class Trainer:
    """One simulated job. Call `advance` regularly; it returns what its trainer would send."""

    job: Simulated
    progress: Progress
    chance: random.Random
    members: tuple[str, ...] = ()
    paused_until: float = 0.0
    _pending: list[wire.Message] = field(default_factory=list)
    _last: float | None = None
    _reported_at: float = 0.0
    _reported_step: float = 0.0
    _beat_at: float = 0.0

    def advance(self, now: float, pods: Iterable[Member]) -> list[wire.Message]:
        """Train up to `now` (unix seconds) with these pods."""
        pods = tuple(pods)
        ready = sorted((p for p in pods if p.ready and not p.leaving), key=lambda p: p.index)
        names = tuple(pod.pod for pod in ready)
        if len(names) < self.job.min_replicas:
            names = ()
        self._train(now)
        if names != self.members:
            self._change(now, names, {pod.pod for pod in pods if pod.leaving})
        if now >= self.paused_until:
            self._pending, sent = [], self._pending
            return sent + self._report(now)
        return []

    # -- training ------------------------------------------------------------------------------

    def samples_per_s(self) -> float:
        """Of the whole job at its present size, without noise."""
        count = len(self.members)
        return self.job.samples_per_s * float(count**self.job.exponent) if count else 0.0

    def _train(self, now: float) -> None:
        begin = max(self._last if self._last is not None else now, self.paused_until)
        self._last = now
        if now > begin:
            rate = self.samples_per_s() / self.job.global_batch_size
            self.progress.step = min(
                self.progress.step + rate * (now - begin), float(self.job.total_steps)
            )

    def loss(self) -> float:
        """A power law of the steps, with noise."""
        return 1.7 + 8.3 * (1 + self.progress.step / 200) ** -0.35 + self.chance.gauss(0, 0.015)

    def _report(self, now: float) -> list[wire.Message]:
        if not self.members:
            return self._heartbeat(now, wire.TrainerState.WAITING)
        since = now - self._reported_at
        if since < REPORT_SECONDS or int(self.progress.step) == int(self._reported_step):
            return []
        first = self._reported_at == 0.0
        steps = self.progress.step - self._reported_step
        self._reported_at, self._reported_step = now, self.progress.step
        if first:  # no interval yet to measure over
            return self._heartbeat(now, wire.TrainerState.TRAINING)
        rate = steps * self.job.global_batch_size / since * self.chance.gauss(1.0, 0.015)
        self._beat_at = now
        return [
            wire.Step(
                seq=self._seq(),
                at=now,
                step=int(self.progress.step),
                total_steps=self.job.total_steps,
                quorum_id=self.progress.quorum_id,
                world_size=len(self.members),
                global_batch_size=self.job.global_batch_size,
                loss=round(self.loss(), 4),
                learning_rate=3e-4,
                samples_per_s=round(rate, 2),
                tokens_per_s=round(rate * self.job.tokens_per_sample, 1),
                step_ms=round(1000 * self.job.global_batch_size / rate, 2),
            )
        ]

    def _heartbeat(self, now: float, state: wire.TrainerState) -> list[wire.Message]:
        if now - self._beat_at < HEARTBEAT_SECONDS:
            return []
        self._beat_at = now
        step, quorum = int(self.progress.step), self.progress.quorum_id
        return [wire.Heartbeat(seq=self._seq(), at=now, state=state, quorum_id=quorum, step=step)]

    # -- membership ----------------------------------------------------------------------------

    def _change(self, now: float, names: tuple[str, ...], leaving: set[str]) -> None:
        before, self.members = self.members, names
        joined = tuple(name for name in names if name not in before)
        gone = tuple(name for name in before if name not in names)
        lost = tuple(name for name in gone if name not in leaving)
        self.progress.quorum_id += 1
        if lost and names:
            pause = self._recover(now, lost, joined)
        else:
            # newcomers copy the state from a peer; those that leave do so between two steps
            pause = self.chance.uniform(1.2, 2.5) if joined and before else 0.2
            if before and names:
                self._add(
                    wire.Scale,
                    now + pause,
                    from_replicas=len(before),
                    to_replicas=len(names),
                    quorum_id=self.progress.quorum_id,
                    step=int(self.progress.step),
                    joined=joined,
                    left=gone,
                    pause_s=round(pause, 3),
                )
        self.paused_until = max(self.paused_until, now + pause)
        self._add(
            wire.Membership,
            now + pause,
            quorum_id=self.progress.quorum_id,
            world_size=len(names),
            members=names,
            state=wire.TrainerState.TRAINING if names else wire.TrainerState.WAITING,
            min_replicas=self.job.min_replicas,
            step=int(self.progress.step),
        )

    def _recover(self, now: float, lost: tuple[str, ...], joined: tuple[str, ...]) -> float:
        stages, start = [], 0.0
        for stage, typical in _LOST_STAGES:
            lasts = round(typical * self.chance.uniform(0.7, 1.4), 3)
            stages.append(wire.StageTime(stage=stage, start_s=round(start, 3), duration_s=lasts))
            start += lasts
        self.progress.step = float(int(self.progress.step))  # the broken step is repeated
        self._add(
            wire.Recovery,
            now + start,
            cause="replica_lost",
            started_at=now,
            duration_s=round(start, 3),
            stages=tuple(stages),
            quorum_id=self.progress.quorum_id,
            step=int(self.progress.step) + 1,
            lost=lost,
            joined=joined,
            repeated_steps=1,
        )
        return start

    def _add(self, kind: type[wire.Message], at: float, **values: Any) -> None:
        self._pending.append(kind(seq=self._seq(), at=at, **values))

    def _seq(self) -> int:
        self.progress.seq += 1
        return self.progress.seq
