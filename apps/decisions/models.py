"""Plans, their decisions, and the commands that carry them out."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q

from apps.clusters.models import Cluster
from apps.decisions.choices import LIVE_STATES, CommandKind, CommandState
from apps.training.models import TrainingJob


class Plan(models.Model):
    """What one planning cycle decided. A cycle that decides the same again only moves
    `last_seen_at`. `inputs` (the serialised snapshot and policies, which `digest` is of) is kept
    for plans with commands, so that they can be replayed. The forms of `pending`, `explanations`,
    `reservations` and `notices` are those of `documents.py`."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="plans")
    number = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=64)
    engine_version = models.CharField(max_length=32)
    # When the snapshot was taken; how long observing to recording took is duration_ms.
    snapshot_at = models.DateTimeField(null=True)
    planned_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    duration_ms = models.FloatField(null=True)
    lease_epoch = models.PositiveBigIntegerField()
    inputs = models.JSONField(null=True)
    pending = models.JSONField(default=list)
    explanations = models.JSONField(default=list)
    reservations = models.JSONField(default=list)
    notices = models.JSONField(default=list)

    class Meta:
        ordering = ["-planned_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "number"], name="plan_number"),
            models.CheckConstraint(
                condition=Q(last_seen_at__gte=F("planned_at")), name="plan_seen_after_planned"
            ),
        ]
        indexes = [models.Index(fields=["planned_at"], name="plan_age")]

    def __str__(self) -> str:
        return f"{self.cluster_id} plan {self.number}"


class Decision(models.Model):
    """One job's part of a plan, with its reason: code, sentence, and the numbers it came from.

    `rejected` lists the candidates that lost: [{candidate, code, sentence, numbers}]; `unblock` the
    smallest set of changes found that would let a job go on that waits: [{code, sentence,
    numbers}]. `share` (replicas) and `expected_gain` (relative, in throughput) are null where the
    engine didn't reckon them.
    """

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="decisions")
    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="decisions")
    # Repeated from the plan, so that a job's or a cluster's feed is read from one index.
    at = models.DateTimeField()
    current = models.PositiveIntegerField()
    desired = models.PositiveIntegerField()
    reason_code = models.CharField(max_length=64)
    sentence = models.TextField()
    numbers = models.JSONField(default=dict)
    rejected = models.JSONField(default=list)
    share = models.PositiveIntegerField(null=True)
    expected_gain = models.FloatField(null=True)
    unblock = models.JSONField(default=list)

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["plan", "job"], name="decision_once"),
            models.CheckConstraint(condition=~Q(reason_code=""), name="decision_reason"),
        ]
        indexes = [
            models.Index(fields=["job", "-at"], name="decision_job_time"),
            models.Index(fields=["-at", "-id"], name="decision_time"),
        ]

    def __str__(self) -> str:
        return f"{self.current} -> {self.desired}: {self.reason_code}"


class Command(models.Model):
    """What carries a decision to the cluster. At most one live command a job.

    `epoch` is the cluster's lease epoch it was made under; `precondition` the workload's
    resourceVersion it was planned on, and `uid` its identity.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    decision = models.OneToOneField(Decision, on_delete=models.CASCADE, related_name="command")
    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="commands")
    kind = models.CharField(max_length=10, choices=CommandKind.choices)
    from_replicas = models.PositiveIntegerField()
    to_replicas = models.PositiveIntegerField()
    victims = models.JSONField(default=list)
    state = models.CharField(
        max_length=12, choices=CommandState.choices, default=CommandState.PENDING
    )
    epoch = models.PositiveBigIntegerField()
    attempts = models.PositiveIntegerField(default=0)
    precondition = models.CharField(max_length=64, blank=True)
    uid = models.CharField(max_length=64, blank=True)
    result_code = models.CharField(max_length=64, blank=True)
    result_sentence = models.TextField(blank=True)
    created_at = models.DateTimeField()
    applied_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["job"],
                condition=Q(state__in=sorted(LIVE_STATES)),
                name="command_one_live_a_job",
            ),
            models.CheckConstraint(
                condition=Q(state__in=CommandState.values), name="command_state"
            ),
            models.CheckConstraint(condition=Q(kind__in=CommandKind.values), name="command_kind"),
            models.CheckConstraint(
                condition=Q(state__in=sorted(LIVE_STATES), finished_at__isnull=True)
                | (~Q(state__in=sorted(LIVE_STATES)) & Q(finished_at__isnull=False)),
                name="command_finished",
            ),
            models.CheckConstraint(
                condition=~Q(from_replicas=F("to_replicas")) | Q(kind=CommandKind.ADMIT),
                name="command_changes_size",
            ),
            models.CheckConstraint(
                condition=~Q(kind=CommandKind.SUSPEND) | Q(to_replicas=0),
                name="command_suspends_all",
            ),
            models.CheckConstraint(
                condition=~Q(state=CommandState.APPLIED) | Q(applied_at__isnull=False),
                name="command_applied_at",
            ),
        ]
        indexes = [
            models.Index(fields=["job", "-created_at"], name="command_job_time"),
            # each cycle reads the last resizes and the last failures
            models.Index(fields=["applied_at"], name="command_applied"),
            models.Index(fields=["finished_at"], name="command_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.from_replicas} -> {self.to_replicas} ({self.state})"
