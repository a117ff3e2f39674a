"""Training jobs, their replicas, the faults of their nodes, and their tokens."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from apps.clusters.models import Cluster
from apps.elasticity.models import ElasticityPolicy
from apps.training.choices import FINISHED_PHASES, FaultCause, JobPhase, ReplicaPhase

COUNTS = ("desired", "granted", "running", "productive")


class TrainingJob(models.Model):
    """A managed workload. The four replica counts stay apart, and null means unknown, never 0:
    `desired` is planned, `granted` written to the cluster, `running` has ready pods,
    `productive` is in the training quorum, as the trainer reports."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="jobs")
    kind = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64)
    team = models.CharField(max_length=253, blank=True)
    queue = models.CharField(max_length=253, blank=True)
    priority = models.IntegerField(default=0)
    priority_class = models.CharField(max_length=253, blank=True)
    policy = models.ForeignKey(
        ElasticityPolicy, null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs"
    )
    # What the workload's annotation says, also where no such policy exists; then policy_error.
    policy_name = models.CharField(max_length=253, blank=True)
    policy_error = models.TextField(blank=True)
    pods_per_replica = models.PositiveIntegerField(default=1)
    accelerator_resource = models.CharField(max_length=253, blank=True)
    accelerators_per_replica = models.PositiveIntegerField(default=0)
    desired = models.PositiveIntegerField(null=True, blank=True)
    granted = models.PositiveIntegerField(null=True, blank=True)
    running = models.PositiveIntegerField(null=True, blank=True)
    productive = models.PositiveIntegerField(null=True, blank=True)
    phase = models.CharField(max_length=12, choices=JobPhase.choices, default=JobPhase.PENDING)
    quorum_id = models.BigIntegerField(null=True, blank=True)
    committed_steps = models.PositiveBigIntegerField(null=True, blank=True)
    total_steps = models.PositiveBigIntegerField(null=True, blank=True)
    loss = models.FloatField(null=True, blank=True)
    # samples a second, over the whole job
    throughput = models.FloatField(null=True, blank=True)
    global_batch_size = models.PositiveBigIntegerField(null=True, blank=True)
    last_report_at = models.DateTimeField(null=True, blank=True)
    last_resize_at = models.DateTimeField(null=True, blank=True)
    last_restart_at = models.DateTimeField(null=True, blank=True)
    # Since when the engine has wanted growth, or has been short after a fault (its History).
    growth_wanted_since = models.DateTimeField(null=True, blank=True)
    short_since = models.DateTimeField(null=True, blank=True)
    # Accelerator-seconds of service until `attained_at`; since then it runs as `running` says.
    attained = models.FloatField(default=0.0)
    attained_at = models.DateTimeField(null=True, blank=True)
    # Median pause of its last resizes, in seconds, as its trainers measured them.
    resize_cost_s = models.FloatField(null=True, blank=True)
    # Of the observed replicas: their rows are read and compared only when this differs.
    replicas_digest = models.CharField(max_length=64, blank=True, editable=False)
    created_at = models.DateTimeField()
    observed_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "id"]
        permissions = [("inject_fault", "Can signal a replica of a sandbox job")]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="job_uid"),
            models.UniqueConstraint(
                fields=["cluster", "kind", "namespace", "name"],
                condition=Q(finished_at__isnull=True),
                name="job_live_name",
            ),
            models.CheckConstraint(condition=Q(phase__in=JobPhase.values), name="job_phase"),
            models.CheckConstraint(
                condition=Q(
                    finished_at__isnull=True, phase__in=sorted(set(JobPhase) - FINISHED_PHASES)
                )
                | Q(finished_at__isnull=False, phase__in=sorted(FINISHED_PHASES)),
                name="job_finished_phase",
            ),
            models.CheckConstraint(condition=Q(pods_per_replica__gte=1), name="job_pods_positive"),
            models.CheckConstraint(
                condition=Q(policy_error="") | Q(policy__isnull=True), name="job_policy_or_error"
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "phase"], name="job_cluster_phase"),
            models.Index(fields=["team"], name="job_team"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        return self.finished_at is not None


class Replica(models.Model):
    """One data-parallel replica as it is now; the row goes when the replica does.

    `pod_name` and `node_name` are those of its first pod; `pods` lists all of a replica of
    several: [{name, node, phase, ready}].
    """

    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="replicas")
    index = models.PositiveIntegerField()
    pod_name = models.CharField(max_length=253, blank=True)
    node_name = models.CharField(max_length=253, blank=True)
    pods = models.JSONField(default=list)
    phase = models.CharField(max_length=12, choices=ReplicaPhase.choices)
    ready = models.BooleanField(default=False)
    started_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["job", "index"]
        constraints = [
            models.UniqueConstraint(fields=["job", "index"], name="replica_index"),
            models.CheckConstraint(
                condition=Q(phase__in=ReplicaPhase.values), name="replica_phase"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}[{self.index}]"


class NodeFault(models.Model):
    """A job lost a replica to a node (see `faults.py`)."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="node_faults")
    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="node_faults")
    node_name = models.CharField(max_length=253)
    cause = models.CharField(max_length=20, choices=FaultCause.choices)
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [
            models.CheckConstraint(condition=~Q(node_name=""), name="node_fault_node"),
            models.CheckConstraint(
                condition=Q(cause__in=FaultCause.values), name="node_fault_cause"
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "at"], name="node_fault_time"),
            models.Index(fields=["at"], name="node_fault_age"),
        ]

    def __str__(self) -> str:
        return f"{self.node_name} {self.cause} {self.at}"


class InflowHour(models.Model):
    """How many more accelerators demand without an elasticity policy took within one recorded
    hour than it held at its beginning (see `inflow.py`). An hour without a row isn't known."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="inflow_hours")
    resource = models.CharField(max_length=253)
    hour = models.DateTimeField()
    inflow = models.FloatField()

    class Meta:
        ordering = ["hour"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "resource", "hour"], name="inflow_once"),
            models.CheckConstraint(condition=Q(inflow__gte=0), name="inflow_not_negative"),
        ]
        indexes = [models.Index(fields=["hour"], name="inflow_age")]

    def __str__(self) -> str:
        return f"{self.resource} {self.hour}"


class JobToken(models.Model):
    """What a job's trainer signs in with, for that job's reports only. Only a digest is kept."""

    job = models.ForeignKey(TrainingJob, on_delete=models.CASCADE, related_name="tokens")
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.prefix}…"
