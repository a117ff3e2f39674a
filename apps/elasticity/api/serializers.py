from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.elasticity import actions, selectors
from apps.elasticity.models import ElasticityPolicy


@extend_schema_field({"type": "array", "items": {"type": "object", "additionalProperties": {}}})
class ScheduleField(serializers.JSONField):
    """Windows of time in which the bounds differ; `engine/schedules.py` says what one holds."""


class ElasticityPolicySerializer(serializers.ModelSerializer):
    replica_discrete_values = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**31 - 1),
        allow_null=True,
        required=False,
        max_length=1000,
    )
    schedule = ScheduleField(required=False)
    valid_sizes = serializers.SerializerMethodField(help_text="What the bounds and steps allow.")
    job_count = serializers.SerializerMethodField(help_text="Live jobs that use it.")

    class Meta:
        model = ElasticityPolicy
        fields = ["id", *actions.FIELDS, "valid_sizes", "job_count", "created_at", "updated_at"]
        read_only_fields = ["id", "created_at", "updated_at"]

    def get_valid_sizes(self, policy: ElasticityPolicy) -> list[int]:
        return list(selectors.sizes(policy))

    def get_job_count(self, policy: ElasticityPolicy) -> int:
        known = getattr(policy, "job_count", None)
        return known if known is not None else policy.jobs.filter(finished_at=None).count()

    def validate_schedule(self, value: Any) -> Any:
        if not isinstance(value, list):
            raise serializers.ValidationError("Give a list of windows, [] for none.")
        return value
