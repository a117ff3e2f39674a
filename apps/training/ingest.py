"""Take in what a job's trainer reports. The only file that knows the wire format.

Idempotent: messages are numbered within an attempt, and what is not above the last number taken in
is dropped, under a lock, in the transaction that writes the rest. Heartbeats, memberships and steps
move the job's row; steps, recoveries and scale events become rows of their own. Checkpoints, log
matches and stragglers are counted for Prometheus.
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
from apps.training import scaling
from apps.training.events import Event, job_event, recovery_event, sample_event
from apps.training.models import RecoveryEvent, RunAttempt, ThroughputSample, TrainingJob
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
        HANDLERS.get(type(message), ignore)(batch, message)
    reported = min(batch.moment(messages[-1].at), now)
    batch.attempt_values |= {"last_sequence": messages[-1].seq, "last_report_at": reported}
    ThroughputSample.objects.bulk_create(batch.samples, batch_size=500)
    scaling.learn(job, batch.samples)
    RecoveryEvent.objects.bulk_create(batch.recoveries)
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


def ignore(batch: Batch, message: wire.Message) -> None:
    """Counted, no row: checkpoints, log matches, stragglers."""


def heartbeat(batch: Batch, message: wire.Heartbeat) -> None:
    if message.step is not None:
        batch.job_values["committed_steps"] = message.step
    trainer_state(batch, message.state, message.at)


def membership(batch: Batch, message: wire.Membership) -> None:
    batch.attempt_values |= {"quorum_id": message.quorum_id, "world_size": message.world_size}
    members = len(set(message.members))
    if members and message.world_size and message.world_size % members == 0:
        batch.attempt_values["ranks_per_replica"] = message.world_size // members
    productive = batch.replicas(message.world_size)
    batch.job_values |= {"quorum_id": message.quorum_id, "productive": productive}
    if message.step is not None:
        batch.job_values["committed_steps"] = message.step
    trainer_state(batch, message.state, message.at)


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
            stages=[
                {
                    "stage": str(stage.stage),
                    "start_s": stage.start_s,
                    "duration_s": stage.duration_s,
                }
                for stage in message.stages
            ],
            quorum_id=message.quorum_id,
            step=message.step,
            lost=list(message.lost),
            joined=list(message.joined),
            detail=message.detail,
        )
    )
    if message.quorum_id is not None:
        batch.job_values["quorum_id"] = message.quorum_id


HANDLERS: dict[type[wire.Message], Any] = {
    wire.Heartbeat: heartbeat,
    wire.Membership: membership,
    wire.Step: step,
    wire.Scale: scale,
    wire.Recovery: recovery,
}
