"""Plans, decisions with their reasons, commands, and the demand that waits."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.api.serializers import CountsField, NumbersField, ReasonSerializer
from apps.decisions.documents import explained
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
    share = serializers.IntegerField(
        allow_null=True, help_text="Replicas that its queue's objective gives it, where reckoned."
    )
    expected_gain = serializers.FloatField(
        allow_null=True,
        help_text="Relative gain in throughput of the change (or of the next size, if it stays), "
        "its pause paid for.",
    )
    unblock = ReasonSerializer(
        many=True,
        help_text="The smallest set of changes found that would let it go on, if it waits.",
    )
    command = serializers.SerializerMethodField()

    class Meta:
        model = Decision
        fields = [
            "id", "plan", "cluster", "job", "at", "current", "desired", "reason_code", "sentence",
            "numbers", "rejected", "share", "expected_gain", "unblock", "command",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(CommandSerializer(allow_null=True))
    def get_command(self, decision: Decision) -> dict | None:
        command = getattr(decision, "command", None)
        return CommandSerializer(command).data if command else None


class PendingDemandSerializer(serializers.Serializer):
    workload = serializers.CharField(help_text="Kind/namespace/name, or Pod/namespace/name.")
    priority = serializers.IntegerField()
    pods = serializers.IntegerField()
    requests = CountsField(help_text="What one pod asks for.")
    since = serializers.DateTimeField(allow_null=True)
    reason = ReasonSerializer(allow_null=True)
    rejected = RejectionSerializer(
        many=True,
        allow_null=True,
        help_text="Who could have given places and why each didn't; null where it was left out.",
    )
    rejected_count = serializers.IntegerField()
    unblock = ReasonSerializer(
        many=True, help_text="The smallest set of changes found that would give it its places."
    )


class ReservationSerializer(serializers.Serializer):
    """Places kept for a demand that has waited long."""

    demand = serializers.CharField()
    priority = serializers.IntegerField()
    nodes = serializers.DictField(child=CountsField(), help_text="{node: {resource: accelerators}}")


class SeenSerializer(serializers.Serializer):
    """Which plan an answer is from; nulls before the first."""

    cluster = serializers.CharField()
    plan = serializers.IntegerField(allow_null=True)
    planned_at = serializers.DateTimeField(allow_null=True)
    last_seen_at = serializers.DateTimeField(allow_null=True)
    age_s = serializers.FloatField(allow_null=True)


class PendingQuerySerializer(serializers.Serializer):
    rejected = serializers.BooleanField(
        default=True,
        help_text="With the rejected candidates of each; false leaves them out, where much waits.",
    )


class PendingSerializer(SeenSerializer):
    """Demand that waits, as the last plan saw it; `items` is null before the first plan."""

    items = PendingDemandSerializer(many=True, allow_null=True)
    reservations = ReservationSerializer(many=True, allow_null=True)


class WhyPendingSerializer(SeenSerializer):
    """Why one workload or pod waits, or has no more: from the last plan, nothing is planned."""

    workload = serializers.CharField()
    waits = serializers.BooleanField()
    items = PendingDemandSerializer(
        many=True, help_text="What of it waits: a job's minimum and what is above it are two."
    )
    reservations = ReservationSerializer(many=True)
    decision = DecisionSerializer(
        allow_null=True, help_text="The newest decision, for a managed job: why it has no more."
    )


class NoticeSerializer(serializers.Serializer):
    """Something that an operator should know."""

    subject = serializers.CharField(help_text="A node, pod or workload.")
    code = serializers.CharField()
    sentence = serializers.CharField()
    numbers = NumbersField()


class NoticesSerializer(SeenSerializer):
    """Notices of the last plan; `items` is null before the first plan."""

    items = NoticeSerializer(many=True, allow_null=True)


class PlanSerializer(serializers.ModelSerializer):
    cluster = serializers.CharField(source="cluster.name")
    pending = serializers.SerializerMethodField()
    reservations = ReservationSerializer(many=True)
    notices = NoticeSerializer(many=True)
    decisions = DecisionSerializer(many=True)
    replayable = serializers.SerializerMethodField(
        help_text="Its inputs were kept (plans with commands)."
    )

    class Meta:
        model = Plan
        fields = [
            "id", "cluster", "number", "digest", "engine_version", "snapshot_at", "planned_at",
            "last_seen_at", "duration_ms", "lease_epoch", "replayable", "pending",
            "reservations", "notices", "decisions",
        ]  # fmt: skip
        read_only_fields = fields

    def get_replayable(self, plan: Plan) -> bool:
        return plan.inputs is not None

    @extend_schema_field(PendingDemandSerializer(many=True))
    def get_pending(self, plan: Plan) -> list[dict]:
        rows = explained(plan.pending, plan.explanations, rejected=True)
        return PendingDemandSerializer(rows, many=True).data
