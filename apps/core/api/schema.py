"""OpenAPI: every operation documents the one error shape, and the token scheme is named."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers


class ErrorSerializer(serializers.Serializer):
    field = serializers.CharField(allow_null=True)
    code = serializers.CharField()
    message = serializers.CharField()


class ErrorsSerializer(serializers.Serializer):
    errors = ErrorSerializer(many=True)


# What a request can meet whichever the operation; DRF answers each with the one shape.
COMMON = ("400", "401", "403", "404", "405", "406", "409", "413", "415", "429", "503")


class ConcertinaSchema(AutoSchema):
    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        responses = super()._get_response_bodies(direction)
        for code in COMMON:
            if code not in responses:
                responses[code] = self._get_response_for_code(ErrorsSerializer, code)
        return dict(sorted(responses.items()))
