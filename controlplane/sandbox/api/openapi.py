"""OpenAPI documents: enough for kubectl's validation, explain and dry run."""

from __future__ import annotations

from functools import cache
from typing import Any

from controlplane.sandbox import schema
from controlplane.sandbox.api.discovery import VERSION
from controlplane.sandbox.kinds import KINDS, KindInfo

_SCALARS = {
    "string": {"type": "string"},
    "integer": {"type": "integer", "format": "int32"},
    "number": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "int-or-string": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    "any": {},
}
_OPTIONS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]
_INFO = {"title": "Concertina sandbox (Kubernetes API)", "version": VERSION["gitVersion"]}


def index() -> dict[str, Any]:
    """/openapi/v3: one document a group and version."""
    places = sorted({_place(kind) for kind in KINDS})
    return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in places}}


@cache
def v3(place: str) -> dict[str, Any] | None:
    """/openapi/v3/<place>, as `api/v1` or `apis/batch/v1`; None when there is none."""
    kinds = [kind for kind in KINDS if _place(kind) == place]
    if not kinds:
        return None
    prefix = "#/components/schemas/"
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": {_path(kind): {"patch": _patch(kind)} for kind in kinds},
        "components": {"schemas": _definitions(kinds, prefix)},
    }


@cache
def v2() -> dict[str, Any]:
    """/openapi/v2 as JSON."""
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": {_path(kind): {"patch": _patch(kind)} for kind in KINDS},
        "definitions": _definitions(list(KINDS), "#/definitions/"),
    }


def _place(kind: KindInfo) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _path(kind: KindInfo) -> str:
    namespace = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"/{_place(kind)}{namespace}/{kind.plural}/{{name}}"


def _gvk(kind: KindInfo) -> dict[str, str]:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def _patch(kind: KindInfo) -> dict[str, Any]:
    return {
        "operationId": f"patch{kind.kind}",
        "parameters": _OPTIONS,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _gvk(kind),
    }


def _name(type_name: str) -> str:
    return f"io.k8s.api.{type_name}"


def _definitions(kinds: list[KindInfo], prefix: str) -> dict[str, Any]:
    """The schemas of the kinds and of all that they use."""
    found: dict[str, Any] = {}
    waiting = [kind.kind for kind in kinds]
    of_kind = {kind.kind: kind for kind in kinds}
    while waiting:
        name = waiting.pop()
        if _name(name) in found:
            continue
        known = schema.types()[name]
        body: dict[str, Any] = {
            "type": "object",
            "properties": {f.name: _property(f, prefix) for f in known.fields.values()},
        }
        if known.required:
            body["required"] = list(known.required)
        if name in of_kind:
            body["x-kubernetes-group-version-kind"] = [_gvk(of_kind[name])]
        found[_name(name)] = body
        waiting += [f.type for f in known.fields.values() if schema.is_type(f.type)]
    return found


def _property(field: schema.Field, prefix: str) -> dict[str, Any]:
    if schema.is_type(field.type):
        inner: dict[str, Any] = {"$ref": prefix + _name(field.type)}
    else:
        inner = dict(_SCALARS[field.type])
    if field.shape == "map":
        return {"type": "object", "additionalProperties": inner}
    if field.shape == "list":
        return {"type": "array", "items": inner, **_list_rules(field)}
    return inner


def _list_rules(field: schema.Field) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    if field.merge_key is not None:
        rules["x-kubernetes-patch-strategy"] = "merge"
        if field.merge_key:
            rules["x-kubernetes-patch-merge-key"] = field.merge_key
    keys = field.map_keys
    if keys:
        rules |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    else:
        rules["x-kubernetes-list-type"] = "atomic" if keys is None else "set"
    return rules
