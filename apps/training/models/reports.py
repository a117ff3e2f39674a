"""What trainers report: their lives, steps, interruptions, and what else happened."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from apps.training.choices import EventKind
from apps.training.models.jobs import TrainingJob


class RunAttempt(models.Model):
    """One life of a trainer's training loop: from a start (or restart from a checkpoint) on.

    `last_sequence` is the highest message taken in; what comes again is dropped.
    """

    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="attempts")
    attempt = models.CharField(max_length=64)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    last_report_at = models.DateTimeField(null=True, blank=True)
    last_sequence = models.BigIntegerField(default=-1)
    world_size = models.PositiveIntegerField(null=True, blank=True)
    # A replica of several ranks; null until a membership has said who is in the world.
    ranks_per_replica = models.PositiveIntegerField(null=True, blank=True)
    quorum_id = models.BigIntegerField(null=True, blank=True)
    first_step = models.PositiveBigIntegerField(null=True, blank=True)
    last_step = models.PositiveBigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["-started_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt"], name="run_attempt_once"),
            models.CheckConstraint(condition=~Q(attempt=""), name="run_attempt_named"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.attempt}"


class RecoveryEvent(models.Model):
    """One interruption of training and how it was overcome.

    `stages` is [{stage, start_s, duration_s}] in order, `start_s` from `started_at`; `duration_s`
    is the downtime (null: not measured). A planned resize that took effect is kept here too
    (`scale_up`, `scale_down`). `lost` and `joined` name replicas; `source` is the one whose state
    was taken over, or `checkpoint`. (attempt, sequence) makes it idempotent.
    """

    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="recoveries")
    attempt = models.ForeignKey(RunAttempt, on_delete=models.CASCADE, related_name="recoveries")
    sequence = models.BigIntegerField()
    kind = models.CharField(max_length=32)
    started_at = models.DateTimeField()
    duration_s = models.FloatField(null=True)
    stages = models.JSONField(default=list)
    quorum_id = models.BigIntegerField(null=True, blank=True)
    step = models.PositiveBigIntegerField(null=True, blank=True)
    lost = models.JSONField(default=list)
    joined = models.JSONField(default=list)
    detail = models.TextField(blank=True)
    source = models.CharField(max_length=253, blank=True)
    # of state, sent or received by the replica that reports
    bytes_moved = models.PositiveBigIntegerField(null=True)

    class Meta:
        ordering = ["-started_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "sequence"], name="recovery_once"),
            models.CheckConstraint(
                condition=Q(duration_s__isnull=True) | Q(duration_s__gte=0),
                name="recovery_duration",
            ),
        ]
        indexes = [models.Index(fields=["job", "-started_at"], name="recovery_job_time")]

    def __str__(self) -> str:
        return f"{self.kind} at {self.started_at}"


class ThroughputSample(models.Model):
    """What a trainer reported about one step (or a few). Null is unknown, never 0.

    `mfu` is the model FLOPs utilisation (1.0 is the devices' peak), `grad_norm` that before
    clipping. `phases_ms` are milliseconds a step by phase, of the replica that reports; null where
    it doesn't measure them. `tokens` counts since training began, `bytes_moved` since the last
    report.
    """

    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="samples")
    attempt = models.ForeignKey(RunAttempt, on_delete=models.CASCADE, related_name="samples")
    sequence = models.BigIntegerField()
    at = models.DateTimeField()
    step = models.PositiveBigIntegerField()
    samples_per_s = models.FloatField(null=True)
    tokens_per_s = models.FloatField(null=True)
    loss = models.FloatField(null=True)
    global_batch_size = models.PositiveBigIntegerField(null=True)
    world_size = models.PositiveIntegerField(null=True)
    replicas = models.PositiveIntegerField(null=True)
    learning_rate = models.FloatField(null=True)
    step_ms = models.FloatField(null=True)
    mfu = models.FloatField(null=True)
    grad_norm = models.FloatField(null=True)
    data_wait_ms = models.FloatField(null=True)
    phases_ms = models.JSONField(null=True)
    tokens = models.PositiveBigIntegerField(null=True)
    bytes_moved = models.PositiveBigIntegerField(null=True)

    class Meta:
        ordering = ["at"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "sequence"], name="sample_once"),
        ]
        indexes = [
            models.Index(fields=["job", "at"], name="sample_job_time"),
            models.Index(fields=["at"], name="sample_age"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} step {self.step}"


class ScalingPoint(models.Model):
    """What a job's trainers measured at one size: running mean and variance of samples a second,
    the newest samples weighing most once there are many (see `scaling.py`)."""

    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="scaling")
    replicas = models.PositiveIntegerField()
    samples = models.PositiveIntegerField()
    samples_per_s = models.FloatField()
    variance = models.FloatField(default=0.0)
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["job", "replicas"]
        constraints = [
            models.UniqueConstraint(fields=["job", "replicas"], name="scaling_point_once"),
            models.CheckConstraint(
                condition=Q(replicas__gte=1, samples__gte=1), name="scaling_point_measured"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} at {self.replicas}"


class JobEvent(models.Model):
    """Something worth knowing that happened to a job and interrupted nothing: a log rule that
    matched, a slow replica, a checkpoint that could not be written, an agent that refused.

    `sentence` explains it; `code` is a word to filter by; `detail` is text of the trainer's own (a
    log line). What a trainer reported has its attempt and sequence, which make it idempotent.
    """

    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="events")
    attempt = models.ForeignKey(
        RunAttempt, null=True, on_delete=models.CASCADE, related_name="events"
    )
    sequence = models.BigIntegerField(null=True)
    at = models.DateTimeField()
    kind = models.CharField(max_length=20, choices=EventKind.choices)
    code = models.CharField(max_length=64, blank=True)
    replica = models.CharField(max_length=253, blank=True)
    sentence = models.TextField()
    detail = models.TextField(blank=True)
    numbers = models.JSONField(default=dict)

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "sequence"], name="event_once"),
            models.CheckConstraint(condition=Q(kind__in=EventKind.values), name="event_kind"),
            models.CheckConstraint(condition=~Q(sentence=""), name="event_sentence"),
        ]
        indexes = [
            models.Index(fields=["job", "-at", "-id"], name="event_job_time"),
            models.Index(fields=["at"], name="event_age"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} at {self.at}"
