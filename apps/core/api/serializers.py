"""What serializers of every app share, and the audit trail's own."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.models import AuditEntry

NUMBERS = {
    "type": "object",
    "additionalProperties": {"oneOf": [{"type": "number"}, {"type": "string"}]},
}


@extend_schema_field({"type": "object", "additionalProperties": {"type": "integer"}})
class CountsField(serializers.JSONField):
    """{name: whole number}"""


@extend_schema_field(NUMBERS)
class NumbersField(serializers.JSONField):
    """The numbers a reason came from: {name: number or text}"""


class RawField(serializers.JSONField):
    """Any JSON object, as it was recorded."""


class ReasonSerializer(serializers.Serializer):
    code = serializers.CharField()
    sentence = serializers.CharField()
    numbers = NumbersField()


class AuditEntrySerializer(serializers.ModelSerializer):
    actor = serializers.CharField(source="actor_name")
    before = serializers.SerializerMethodField()
    after = serializers.SerializerMethodField()

    class Meta:
        model = AuditEntry
        fields = [
            "id", "at", "actor", "verb", "object_type", "object_id", "object_name",
            "before", "after",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field({"type": ["object", "null"], "additionalProperties": {}})
    def get_before(self, entry: AuditEntry) -> dict[str, Any] | None:
        return entry.before

    @extend_schema_field({"type": ["object", "null"], "additionalProperties": {}})
    def get_after(self, entry: AuditEntry) -> dict[str, Any] | None:
        return entry.after
