from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.clusters.models import Cluster
from apps.priorities import cohort_actions, queue_actions
from apps.priorities.models import Cohort, CohortQuota, PriorityClass, Queue, QueueQuota


class PriorityClassSerializer(serializers.ModelSerializer):
    class Meta:
        model = PriorityClass
        fields = [
            "id", "name", "value", "preemption_policy", "description", "source",
            "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = ["id", "source", "created_at", "updated_at"]


class ClusterNameField(serializers.SlugRelatedField):
    """A cluster by its name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(slug_field="name", queryset=Cluster.objects.all(), **options)

    def to_internal_value(self, data: Any) -> Cluster:
        if not isinstance(data, str) or "\x00" in data:
            self.fail("does_not_exist", slug_name="name", value=str(data)[:63])
        return super().to_internal_value(data)


class QueueQuotaSerializer(serializers.ModelSerializer):
    class Meta:
        model = QueueQuota
        fields = ["resource", "nominal", "borrowing_limit", "lending_limit"]


class CohortQuotaSerializer(serializers.ModelSerializer):
    class Meta:
        model = CohortQuota
        fields = ["resource", "nominal"]


class QueueSerializer(serializers.ModelSerializer):
    cluster = ClusterNameField(help_text="Its name.")
    quotas = QueueQuotaSerializer(
        many=True,
        required=False,
        max_length=100,
        help_text="One a resource; those that are given replace all that there are.",
    )

    class Meta:
        model = Queue
        fields = ["id", *queue_actions.FIELDS, "quotas", "created_at", "updated_at"]
        read_only_fields = ["id", "created_at", "updated_at"]
        validators: list[Any] = []  # the model's own names the field


class CohortSerializer(serializers.ModelSerializer):
    cluster = ClusterNameField(help_text="Its name.")
    quotas = CohortQuotaSerializer(
        many=True,
        required=False,
        max_length=100,
        help_text="What it owns beyond its queues, one a resource; those that are given replace "
        "all that there are.",
    )

    class Meta:
        model = Cohort
        fields = ["id", *cohort_actions.FIELDS, "quotas", "created_at", "updated_at"]
        read_only_fields = ["id", "created_at", "updated_at"]
        validators: list[Any] = []
