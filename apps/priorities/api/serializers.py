from __future__ import annotations

from rest_framework import serializers

from apps.priorities.models import PriorityClass


class PriorityClassSerializer(serializers.ModelSerializer):
    class Meta:
        model = PriorityClass
        fields = [
            "id", "name", "value", "preemption_policy", "description", "source",
            "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = ["id", "source", "created_at", "updated_at"]
