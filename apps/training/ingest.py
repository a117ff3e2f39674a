"""Take in what a job's trainer reports. The only file that knows the wire format.

Idempotent: messages are numbered within an attempt, and what is not above the last number taken in
is dropped, under a lock, in the transaction that writes the rest. Heartbeats, memberships and steps
move the job's row; steps, recoveries, scale events, log matches, stragglers and checkpoints that
failed become rows of their own. Every kind is counted for Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from prometheus_client import Counter
from rest_framework import serializers

from apps.core import events
from apps.core.api.errors import Refused
from apps.training import happenings, scaling
from apps.training.choices import EventKind
from apps.training.events import Event, job_event, recovery_event, sample_event
from apps.training.models import (
    JobEvent,
    RecoveryEvent,
    RunAttempt,
    ThroughputSample,
    TrainingJob,
)
from trainer_runtime import wire

# A trainer's clock may be off; beyond this, its times are moved by the difference.
MOST_SKEW = timedelta(seconds=60)
# After an outage a batch may hold a thousand steps: pages follow the newest, and fetch the rest.
MOST_LIVE_SAMPLES = 100

messages_taken = Counter("concertina_telemetry_messages", "Trainers' messages taken in", ["kind"])
messages_dropped = Counter("concertina_telemetry_duplicates", "Messages that came again")


@dataclass(slots=True)
class Batch:
    """What the new messages of one envelope come to."""

    attempt: RunAttempt
    shift: timedelta
    job_values: dict[str, Any] = field(default_factory=dict)
    attempt_values: dict[str, Any] = field(default_factory=dict)
    samples: list[ThroughputSample] = field(default_factory=list)
    recoveries: list[RecoveryEvent] = field(default_factory=list)
    happened: list[JobEvent] = field(default_factory=list)

    def replicas(self, world_size: int) -> int:
        """How many replicas a world of so many ranks is."""
        known = self.attempt_values.get("ranks_per_replica", self.attempt.ranks_per_replica)
        return world_size // (known or 1)

    def moment(self, seconds: float) -> datetime:
        """The server's time for the sender's. Raises ValidationError for one that no date holds."""
        try:
            return datetime.fromtimestamp(seconds, UTC) + self.shift
        except OverflowError:
            text = f"{seconds:g} is too far from sent_at for a date; send unix seconds"
            raise serializers.ValidationError({"at": text}, "invalid_message") from None

    def note(self, message: wire.Message, kind: EventKind, sentence: str, **fields: Any) -> None:
        """Something happened that interrupted nothing."""
        self.happened.append(
            JobEvent(
                job_id=self.attempt.job_id, attempt=self.attempt, sequence=message.seq,
                at=self.moment(message.at), kind=kind, sentence=sentence, **fields,
            )
        )  # fmt: skip


def take_in(job: TrainingJob, body: bytes, now: datetime | None = None) -> dict[str, int]:
    """Decode an envelope and record what is new in it: {accepted, duplicates, last_sequence}.

    Raises ValidationError with the path of the field that is wrong (also for an unknown version)
    and Refused (403) when the envelope names another job than the token's.
    """
    now = now or timezone.now()
    try:
        envelope = wire.decode(body)
    except wire.WireError as error:
        raise serializers.ValidationError({error.field: str(error)}, "invalid_message") from None
    if envelope.job != str(job.pk):
        raise Refused(
            f"This token is for job {job.pk}; the envelope names {envelope.job!r}.",
            "wrong_job",
            403,
        )
    with transaction.atomic():
        attempt = locked_attempt(job, envelope, now)
        new = [m for m in envelope.messages if m.seq > attempt.last_sequence]
        if new:
            record(job, attempt, new, envelope.sent_at, now)
    for message in new:
        messages_taken.labels(str(message.kind)).inc()
    duplicates = len(envelope.messages) - len(new)
    messages_dropped.inc(duplicates)
    return {
        "accepted": len(new),
        "duplicates": duplicates,
        "last_sequence": attempt.last_sequence,
    }


def locked_attempt(job: TrainingJob, envelope: wire.Envelope, now: datetime) -> RunAttempt:
    """The attempt's row, locked; made at its first message, which ends those before it."""
    # The job first: two first messages of one attempt at once must not both make it.
    job_row = TrainingJob.objects.select_for_update(of=("self",)).get(pk=job.pk)
    attempt = (
        RunAttempt.objects.select_for_update().filter(job=job_row, attempt=envelope.attempt).first()
    )
    if attempt is not None:
        return attempt
    earlier = job_row.attempts.filter(ended_at=None)
    if job_row.attempts.exists():
        earlier.update(ended_at=now)
        TrainingJob.objects.filter(pk=job.pk).update(last_restart_at=now)
    return RunAttempt.objects.create(job=job_row, attempt=envelope.attempt, started_at=now)


def record(
    job: TrainingJob,
    attempt: RunAttempt,
    messages: list[wire.Message],
    sent_at: float,
    now: datetime,
) -> None:
    skew = now - datetime.fromtimestamp(sent_at, UTC)
    batch = Batch(attempt, skew if abs(skew) > MOST_SKEW else timedelta(0))
    for message in messages:
        HANDLERS[type(message)](batch, message)
    reported = min(batch.moment(messages[-1].at), now)
    batch.attempt_values |= {"last_sequence": messages[-1].seq, "last_report_at": reported}
    ThroughputSample.objects.bulk_create(batch.samples, batch_size=500)
    scaling.learn(job, batch.samples)
    RecoveryEvent.objects.bulk_create(batch.recoveries)
    happenings.record(job, batch.happened)
    if any(event.kind in scaling.RESIZES for event in batch.recoveries):
        batch.job_values["resize_cost_s"] = scaling.median_pause(job)
    save(attempt, batch.attempt_values)
    # What an attempt that is over still had in its buffer must not overwrite its successor.
    current = not job.attempts.filter(started_at__gt=attempt.started_at).exists()
    job = TrainingJob.objects.select_related("cluster", "policy").get(pk=job.pk)
    if current and not job.finished:
        save(job, {**batch.job_values, "last_report_at": reported})
    events.publish_many(live_events(job, batch))


def save(row: TrainingJob | RunAttempt, values: dict[str, Any]) -> None:
    """Write these fields and no others: the loop writes its own at the same time."""
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))


def live_events(job: TrainingJob, batch: Batch) -> list[Event]:
    return [
        *(sample_event(sample) for sample in batch.samples[-MOST_LIVE_SAMPLES:]),
        *(recovery_event(recovery) for recovery in batch.recoveries),
        job_event(job),
    ]


# -- one function a kind ---------------------------------------------------------------------------


def heartbeat(batch: Batch, message: wire.Heartbeat) -> None:
    if message.step is not None:
        batch.job_values["committed_steps"] = message.step
    trainer_state(batch, message.state, message.at)


def membership(batch: Batch, message: wire.Membership) -> None:
    batch.attempt_values |= {"quorum_id": message.quorum_id, "world_size": message.world_size}
    ranks = ranks_per_replica(message)
    if ranks is not None:
        batch.attempt_values["ranks_per_replica"] = ranks
    productive = batch.replicas(message.world_size)
    batch.job_values |= {"quorum_id": message.quorum_id, "productive": productive}
    if message.step is not None:
        batch.job_values["committed_steps"] = message.step
    trainer_state(batch, message.state, message.at)


def ranks_per_replica(message: wire.Membership) -> int | None:
    """As the trainer says, else from its members; None where neither fits its world."""
    world, members = message.world_size, len(set(message.members))
    counted = world // members if members and world % members == 0 else None
    said = (message.ranks_per_replica, counted)
    return next((n for n in said if n and world and world % n == 0), None)


def trainer_state(batch: Batch, state: wire.TrainerState, at: float) -> None:
    """A trainer below its minimum, or stopped, has nobody in its quorum."""
    if state in (wire.TrainerState.WAITING, wire.TrainerState.STOPPED):
        batch.job_values |= {"productive": 0, "throughput": None}
    if state == wire.TrainerState.STOPPED:
        batch.attempt_values["ended_at"] = batch.moment(at)


def step(batch: Batch, message: wire.Step) -> None:
    attempt = batch.attempt
    size = message.world_size
    replicas = batch.replicas(size) if size is not None else None
    batch.samples.append(
        ThroughputSample(
            job_id=attempt.job_id,
            attempt=attempt,
            sequence=message.seq,
            at=batch.moment(message.at),
            step=message.step,
            samples_per_s=message.samples_per_s,
            tokens_per_s=message.tokens_per_s,
            loss=message.loss,
            global_batch_size=message.global_batch_size,
            world_size=message.world_size,
            replicas=replicas,
            learning_rate=message.learning_rate,
            step_ms=message.step_ms,
            mfu=message.mfu,
            grad_norm=message.grad_norm,
            data_wait_ms=message.data_wait_ms,
            phases_ms=message.phases_ms,
            tokens=message.tokens,
            bytes_moved=message.bytes_moved,
        )
    )
    reported = {
        "total_steps": message.total_steps,
        "loss": message.loss,
        "throughput": message.samples_per_s,
        "global_batch_size": message.global_batch_size,
        "quorum_id": message.quorum_id,
        "productive": replicas,
    }
    batch.job_values |= {name: value for name, value in reported.items() if value is not None}
    batch.job_values["committed_steps"] = message.step
    first = batch.attempt_values.get("first_step", attempt.first_step)
    batch.attempt_values |= {
        "first_step": message.step if first is None else first,
        "last_step": message.step,
    }
    if message.world_size is not None:
        batch.attempt_values["world_size"] = message.world_size


def scale(batch: Batch, message: wire.Scale) -> None:
    """A planned resize that took effect: kept beside the recoveries, with what it cost."""
    growing = message.to_replicas > message.from_replicas
    batch.recoveries.append(
        RecoveryEvent(
            job_id=batch.attempt.job_id,
            attempt=batch.attempt,
            sequence=message.seq,
            kind="scale_up" if growing else "scale_down",
            started_at=batch.moment(message.at),
            duration_s=message.pause_s,
            stages=spans(message.stages),
            bytes_moved=message.bytes_moved,
            quorum_id=message.quorum_id,
            step=message.step,
            lost=list(message.left),
            joined=list(message.joined),
            detail=f"From {message.from_replicas} to {message.to_replicas} replicas.",
        )
    )
    batch.job_values |= {"productive": message.to_replicas, "quorum_id": message.quorum_id}


def recovery(batch: Batch, message: wire.Recovery) -> None:
    batch.recoveries.append(
        RecoveryEvent(
            job_id=batch.attempt.job_id,
            attempt=batch.attempt,
            sequence=message.seq,
            kind=message.cause,
            started_at=batch.moment(message.started_at),
            duration_s=message.duration_s,
            stages=spans(message.stages),
            source=message.source or "",
            bytes_moved=message.bytes_moved,
            quorum_id=message.quorum_id,
            step=message.step,
            lost=list(message.lost),
            joined=list(message.joined),
            detail=message.detail,
        )
    )
    if message.quorum_id is not None:
        batch.job_values["quorum_id"] = message.quorum_id


def spans(stages: tuple[wire.StageTime, ...]) -> list[dict[str, Any]]:
    return [
        {"stage": str(each.stage), "start_s": each.start_s, "duration_s": each.duration_s}
        for each in stages
    ]


def checkpoint(batch: Batch, message: wire.Checkpoint) -> None:
    if message.complete:
        return
    sentence = f"The checkpoint of step {message.step} could not be written."
    batch.note(
        message, EventKind.CHECKPOINT_FAILED, sentence, detail=message.detail,
        numbers=known(step=message.step, duration_s=message.duration_s),
    )  # fmt: skip


def log_match(batch: Batch, message: wire.LogMatch) -> None:
    reason = message.reason or ""
    what = "did not find what it expects" if message.missing else "matched"
    why = f" ({reason.replace('_', ' ')})" if reason not in ("", "match") else ""
    where = f" in replica {message.replica}" if message.replica else ""
    batch.note(
        message, EventKind.LOG_MATCH, f"Log rule {message.rule} {what}{where}{why}.",
        code=reason, replica=message.replica or "", detail=message.line,
        numbers=known(value=message.value),
    )  # fmt: skip


def straggler(batch: Batch, message: wire.Straggler) -> None:
    kind = EventKind.STRAGGLER_CLEARED if message.cleared else EventKind.STRAGGLER
    told = "is no longer slower" if message.cleared else "is slower"
    batch.note(
        message, kind, f"Replica {message.replica} {told} than its peers.",
        replica=message.replica,
        numbers=known(
            z_score=message.z_score, work_ms=message.work_ms, median_ms=message.median_ms
        ),
    )  # fmt: skip


def known(**numbers: float | None) -> dict[str, float]:
    """Without those that weren't told: unknown is never 0."""
    return {name: value for name, value in numbers.items() if value is not None}


HANDLERS: dict[type[wire.Message], Any] = {
    wire.Heartbeat: heartbeat,
    wire.Membership: membership,
    wire.Step: step,
    wire.Scale: scale,
    wire.Recovery: recovery,
    wire.Checkpoint: checkpoint,
    wire.LogMatch: log_match,
    wire.Straggler: straggler,
}
