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


class ConcertinaSchema(AutoSchema):
    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        responses = super()._get_response_bodies(direction)
        error = self._get_response_for_code(ErrorsSerializer, "default")
        return {**responses, "default": {**error, "description": "An error, with its reasons"}}


EVENTS = {
    "hello": "first; `server_time`, and whether events flow (`live`, else `reason`)",
    "capacity": "one resource of one cluster now",
    "decision": "a Decision",
    "command": "a Command",
    "job": "a Job",
    "sample": "what a trainer reported about a step",
    "recovery": "a Recovery",
    "job_event": "a JobEvent: a log match, a straggler, a refusal",
    "cluster": "a cluster was observed, or can't be",
    "status": "events stopped (`live` false, with `reason`) or flow again",
    "reset": "some events can't be replayed: fetch what is shown again",
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT, WHOLE, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
MOMENT = {"type": "string", "format": "date-time"}
UUID = {"type": "string", "format": "uuid"}
NULL_NUMBER = {"type": ["number", "null"], "format": "double"}
NULL_WHOLE = {"type": ["integer", "null"]}

EVENT_SCHEMAS: dict[str, dict[str, Any]] = {
    "HelloEvent": _object(server_time=MOMENT, live=FLAG, reason=TEXT),
    "StatusEvent": _object(live=FLAG, reason=TEXT),
    "ResetEvent": _object(reason=TEXT),
    "ClusterEvent": _object(
        name=TEXT, last_observed_at={**MOMENT, "type": ["string", "null"]}, last_error=TEXT
    ),
    "CapacityEvent": _object(
        cluster=TEXT,
        at=MOMENT,
        resource=TEXT,
        total=WHOLE,
        states=_ref("CapacityStates"),
        holders={"type": "object", "additionalProperties": WHOLE},
    ),
    "SampleEvent": _object(
        job=UUID,
        at=MOMENT,
        step=WHOLE,
        samples_per_s=NULL_NUMBER,
        tokens_per_s=NULL_NUMBER,
        loss=NULL_NUMBER,
        learning_rate=NULL_NUMBER,
        step_ms=NULL_NUMBER,
        mfu=NULL_NUMBER,
        grad_norm=NULL_NUMBER,
        data_wait_ms=NULL_NUMBER,
        phases_ms={
            "type": ["object", "null"],
            "additionalProperties": {"type": "number", "format": "double"},
        },
        tokens=NULL_WHOLE,
        bytes_moved=NULL_WHOLE,
        global_batch_size=NULL_WHOLE,
        world_size=NULL_WHOLE,
    ),
}
# Payload by event type; those that are API objects keep their names.
PAYLOADS = {
    "hello": "HelloEvent",
    "status": "StatusEvent",
    "reset": "ResetEvent",
    "cluster": "ClusterEvent",
    "capacity": "CapacityEvent",
    "sample": "SampleEvent",
    "job": "Job",
    "decision": "Decision",
    "command": "Command",
    "recovery": "Recovery",
    "job_event": "JobEvent",
}


def add_stream(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """drf-spectacular post-processing: the live stream isn't a DRF view, so it is described here.

    Component `StreamEvents` maps each event type to its payload.
    """
    schemas = result["components"]["schemas"]
    schemas.update(EVENT_SCHEMAS)
    schemas["StreamEvents"] = _object(**{kind: _ref(name) for kind, name in PAYLOADS.items()})
    listed = "\n".join(f"- `{kind}`: {text}" for kind, text in EVENTS.items())
    header = {"in": "header", "name": "Last-Event-ID", "schema": TEXT, "required": False}
    result["paths"]["/api/v1/stream"] = {
        "get": {
            "operationId": "stream",
            "summary": "Live updates as Server-Sent Events",
            "description": "`data` is one JSON object (component StreamEvents maps types to "
            "payloads). Ids are stream ids; Last-Event-ID replays what was missed. A comment "
            f"comes every 15 s.\n\n{listed}",
            "tags": ["telemetry"],
            "parameters": [header],
            "security": [{"token": []}, {"cookieAuth": []}],
            "responses": {
                "200": {
                    "description": "An endless stream",
                    "content": {"text/event-stream": {"schema": TEXT}},
                },
                "default": {
                    "description": "400: Last-Event-ID isn't a stream id; 401: not signed in; "
                    "503: too many streams",
                    "content": {"application/json": {"schema": _ref("Errors")}},
                },
            },
        }
    }
    result["paths"] = dict(sorted(result["paths"].items()))
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    return result
