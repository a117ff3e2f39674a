"""Plans, decisions with their reasons, commands, and the demand that waits."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.api.serializers import CountsField, NumbersField, ReasonSerializer
from apps.decisions.models import Command, Decision, Plan
from apps.training.models import TrainingJob


class CommandSerializer(serializers.ModelSerializer):
    """What carries a decision to the cluster; a `command` event carries the same."""

    decision = serializers.IntegerField(source="decision_id")
    job = serializers.UUIDField(source="job_id")
    victims = serializers.ListField(child=serializers.CharField(), help_text="Pods that leave.")

    class Meta:
        model = Command
        fields = [
            "id", "job", "decision", "kind", "from_replicas", "to_replicas", "victims", "state",
            "epoch", "attempts", "result_code", "result_sentence", "created_at", "applied_at",
            "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class DecidedJobSerializer(serializers.ModelSerializer):
    class Meta:
        model = TrainingJob
        fields = ["id", "kind", "namespace", "name", "team"]
        read_only_fields = fields


class RejectionSerializer(serializers.Serializer):
    """A candidate that was weighed and lost."""

    candidate = serializers.CharField()
    code = serializers.CharField()
    sentence = serializers.CharField()
    numbers = NumbersField()


class DecisionSerializer(serializers.ModelSerializer):
    """One job's part of a plan; a `decision` event carries the same."""

    plan = serializers.IntegerField(source="plan_id")
    cluster = serializers.CharField(source="plan.cluster.name")
    job = DecidedJobSerializer()
    numbers = NumbersField()
    rejected = RejectionSerializer(many=True)
    command = serializers.SerializerMethodField()

    class Meta:
        model = Decision
        fields = [
            "id", "plan", "cluster", "job", "at", "current", "desired", "reason_code", "sentence",
            "numbers", "rejected", "command",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(CommandSerializer(allow_null=True))
    def get_command(self, decision: Decision) -> dict | None:
        command = getattr(decision, "command", None)
        return CommandSerializer(command).data if command else None


class PendingDemandSerializer(serializers.Serializer):
    workload = serializers.CharField(help_text="Job/namespace/name, or the pod's.")
    priority = serializers.IntegerField()
    pods = serializers.IntegerField()
    requests = CountsField(help_text="What one pod asks for.")
    since = serializers.DateTimeField(allow_null=True)
    reason = ReasonSerializer(allow_null=True)


class PendingSerializer(serializers.Serializer):
    """Demand that waits, as the last plan saw it; `items` is null before the first plan."""

    cluster = serializers.CharField()
    plan = serializers.IntegerField(allow_null=True)
    planned_at = serializers.DateTimeField(allow_null=True)
    last_seen_at = serializers.DateTimeField(allow_null=True)
    age_s = serializers.FloatField(allow_null=True)
    items = PendingDemandSerializer(many=True, allow_null=True)


class PlanSerializer(serializers.ModelSerializer):
    cluster = serializers.CharField(source="cluster.name")
    pending = PendingDemandSerializer(many=True)
    decisions = DecisionSerializer(many=True)
    replayable = serializers.SerializerMethodField(
        help_text="Its inputs were kept (plans with commands)."
    )

    class Meta:
        model = Plan
        fields = [
            "id", "cluster", "number", "digest", "engine_version", "snapshot_at", "planned_at",
            "last_seen_at", "duration_ms", "lease_epoch", "replayable", "pending", "decisions",
        ]  # fmt: skip
        read_only_fields = fields

    def get_replayable(self, plan: Plan) -> bool:
        return plan.inputs is not None
