"""Training jobs as the API shows them. A count that isn't known is null, never 0."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from rest_framework import serializers

from apps.core.api.ranges import SeriesQuerySerializer
from apps.elasticity import selectors as elasticity
from apps.training.choices import FaultSignal, RecoveryStage, ReplicaPhase
from apps.training.models import JobEvent, RecoveryEvent, Replica, RunAttempt, TrainingJob


class JobSerializer(serializers.ModelSerializer):
    """The summary of a job: a row of the list, and the payload of a `job` event.

    The four counts stay apart: desired (planned), granted (written to the cluster), running (pods
    ready), productive (in the training quorum, as the trainer reports).
    """

    cluster = serializers.CharField(source="cluster.name")
    policy = serializers.CharField(
        source="policy.name", default=None, allow_null=True, help_text="null: not elastic."
    )
    elastic = serializers.SerializerMethodField()
    min_replicas = serializers.IntegerField(
        source="policy.min_replicas", default=None, allow_null=True
    )
    max_replicas = serializers.IntegerField(
        source="policy.max_replicas", default=None, allow_null=True
    )
    throughput = serializers.FloatField(allow_null=True, help_text="Samples a second.")

    class Meta:
        model = TrainingJob
        fields = [
            "id", "cluster", "kind", "namespace", "name", "team", "queue", "priority",
            "priority_class", "policy", "policy_name", "policy_error", "elastic", "min_replicas",
            "max_replicas", "pods_per_replica", "accelerator_resource",
            "accelerators_per_replica", "desired", "granted", "running", "productive", "phase",
            "committed_steps", "total_steps", "loss", "throughput", "global_batch_size",
            "last_report_at", "created_at", "observed_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_elastic(self, job: TrainingJob) -> bool:
        return job.policy_id is not None


class JobDetailSerializer(JobSerializer):
    sandbox = serializers.BooleanField(
        source="cluster.sandbox", help_text="Faults can be injected only in a sandbox."
    )
    valid_sizes = serializers.SerializerMethodField(
        help_text="Replica counts that the policy allows; null without a policy."
    )
    report_age_s = serializers.SerializerMethodField(help_text="Since the trainer's last report.")
    observed_age_s = serializers.SerializerMethodField()

    class Meta(JobSerializer.Meta):
        fields = [
            *JobSerializer.Meta.fields,
            "uid", "sandbox", "valid_sizes", "quorum_id", "last_resize_at", "last_restart_at",
            "report_age_s", "observed_age_s",
        ]  # fmt: skip
        read_only_fields = fields

    def get_valid_sizes(self, job: TrainingJob) -> list[int] | None:
        return list(elasticity.sizes(job.policy)) if job.policy else None

    def get_report_age_s(self, job: TrainingJob) -> float | None:
        return self.age(job.last_report_at)

    def get_observed_age_s(self, job: TrainingJob) -> float | None:
        return self.age(job.observed_at)

    def age(self, at: datetime | None) -> float | None:
        return (timezone.now() - at).total_seconds() if at else None


class ReplicaPodSerializer(serializers.Serializer):
    name = serializers.CharField()
    node = serializers.CharField(allow_blank=True)
    phase = serializers.ChoiceField(ReplicaPhase.choices)
    ready = serializers.BooleanField()


class ReplicaSerializer(serializers.ModelSerializer):
    pods = ReplicaPodSerializer(many=True)

    class Meta:
        model = Replica
        fields = ["index", "pod_name", "node_name", "phase", "ready", "started_at", "pods"]
        read_only_fields = fields


class AttemptSerializer(serializers.ModelSerializer):
    class Meta:
        model = RunAttempt
        fields = [
            "id", "attempt", "started_at", "ended_at", "last_report_at", "world_size",
            "quorum_id", "first_step", "last_step",
        ]  # fmt: skip
        read_only_fields = fields


class RecoveryStageSpanSerializer(serializers.Serializer):
    stage = serializers.ChoiceField(RecoveryStage.choices)
    start_s = serializers.FloatField(help_text="From the start of the recovery.")
    duration_s = serializers.FloatField()


class RecoverySerializer(serializers.ModelSerializer):
    """One interruption and how it was overcome; a `recovery` event carries the same."""

    attempt = serializers.CharField(source="attempt.attempt")
    stages = RecoveryStageSpanSerializer(many=True)
    lost = serializers.ListField(child=serializers.CharField())
    joined = serializers.ListField(child=serializers.CharField())
    kind = serializers.CharField(
        help_text="scale_up, scale_down (planned), or a cause such as replica_lost."
    )
    duration_s = serializers.FloatField(
        allow_null=True, help_text="Downtime: no step was committed meanwhile."
    )

    class Meta:
        model = RecoveryEvent
        fields = [
            "id", "job", "attempt", "kind", "started_at", "duration_s", "stages", "quorum_id",
            "step", "lost", "joined", "detail", "source", "bytes_moved",
        ]  # fmt: skip
        read_only_fields = fields


class JobEventSerializer(serializers.ModelSerializer):
    """What happened to a job without interrupting it; a `job_event` carries the same."""

    attempt = serializers.CharField(
        source="attempt.attempt", default=None, allow_null=True, help_text="null: not a report."
    )
    numbers = serializers.DictField()

    class Meta:
        model = JobEvent
        fields = [
            "id", "job", "attempt", "at", "kind", "code", "replica", "sentence", "detail",
            "numbers",
        ]  # fmt: skip
        read_only_fields = fields


class SamplePointSerializer(serializers.Serializer):
    at = serializers.DateTimeField()
    step = serializers.IntegerField()
    samples = serializers.IntegerField(help_text="How many samples the point stands for.")
    samples_per_s = serializers.FloatField(allow_null=True)
    tokens_per_s = serializers.FloatField(allow_null=True)
    loss = serializers.FloatField(allow_null=True)
    learning_rate = serializers.FloatField(allow_null=True)
    step_ms = serializers.FloatField(allow_null=True)
    mfu = serializers.FloatField(
        allow_null=True, help_text="Model FLOPs utilisation: 1.0 is the devices' peak."
    )
    grad_norm = serializers.FloatField(allow_null=True, help_text="Before clipping.")
    data_wait_ms = serializers.FloatField(allow_null=True)
    phases_ms = serializers.DictField(
        child=serializers.FloatField(), allow_null=True,
        help_text="Milliseconds a step by phase, of the replica that reports.",
    )  # fmt: skip
    tokens = serializers.IntegerField(allow_null=True, help_text="Since training began.")
    bytes_moved = serializers.IntegerField(allow_null=True, help_text="Since the last report.")
    global_batch_size = serializers.IntegerField(allow_null=True)
    world_size = serializers.IntegerField(allow_null=True)


class SampleSeriesSerializer(serializers.Serializer):
    job = serializers.UUIDField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    bucket_s = serializers.FloatField(allow_null=True, help_text="null: every sample is shown.")
    series = SamplePointSerializer(many=True)


class SampleQuerySerializer(SeriesQuerySerializer):
    pass


class InjectFaultSerializer(serializers.Serializer):
    replica_index = serializers.IntegerField(min_value=0, max_value=2**31 - 1)
    signal = serializers.ChoiceField(FaultSignal.choices, default=FaultSignal.KILL)


class InjectedFaultSerializer(serializers.Serializer):
    job = serializers.UUIDField()
    replica_index = serializers.IntegerField()
    pods = serializers.ListField(child=serializers.CharField(), help_text="What was signalled.")
    signal = serializers.ChoiceField(FaultSignal.choices)


class TelemetryAcceptedSerializer(serializers.Serializer):
    accepted = serializers.IntegerField(help_text="Messages that were new.")
    duplicates = serializers.IntegerField(help_text="Messages that had been taken in before.")
    last_sequence = serializers.IntegerField(help_text="The highest taken in for this attempt.")


class TelemetrySerializer(serializers.Serializer):
    """The wire envelope; `trainer_runtime/wire.py` is its definition. Unknown fields are ignored,
    unknown versions refused."""

    version = serializers.IntegerField()
    job = serializers.UUIDField()
    attempt = serializers.CharField()
    sent_at = serializers.FloatField()
    messages = serializers.ListField(child=serializers.JSONField())
