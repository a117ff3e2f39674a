"""Bring what a client sent into the form that the real server would hold.

Types are checked, unknown fields and nulls dropped, quantities and times written canonically:
what Go's decoding into typed structs does as a side effect.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controlplane.sandbox import schema
from controlplane.sandbox.errors import BadRequest
from controlplane.sandbox.schema import quantity

_GO = {"integer": "int32", "number": "float64", "boolean": "bool", "string": "string"}
# empty values of these disappear (omitempty); structs that are present stay, as emptyDir: {}
_MAX_DEPTH = 60


class _Decoder:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.unknown: list[str] = []

    def wrong(self, value: Any, wanted: str, place: str) -> BadRequest:
        names = {str: "string", bool: "bool", int: "number", float: "number", dict: "object"}
        got = names.get(type(value), "array")
        return BadRequest(
            f'{self.kind} in version "v1" cannot be handled as a {self.kind}: json: cannot '
            f"unmarshal {got} into Go struct field {self.kind}.{place} of type {wanted}"
        )

    def struct(self, name: str, value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(value, f"v1.{name}", place)
        fields = schema.types()[name].fields
        result: dict[str, Any] = {}
        for key, item in value.items():
            where = f"{place}.{key}" if place else key
            field = fields.get(key)
            if field is None:
                self.unknown.append(where)
            elif item is not None:
                decoded = self.field(field, item, where)
                if decoded is not None:
                    result[key] = decoded
        return result

    def field(self, field: schema.Field, value: Any, place: str) -> Any:
        if field.shape == "list":
            if not isinstance(value, list):
                raise self.wrong(value, f"[]{field.type}", place)
            items = [self.value(field, item, f"{place}[{i}]") for i, item in enumerate(value)]
            return items or None
        if field.shape == "map":
            if not isinstance(value, dict):
                raise self.wrong(value, f"map[string]{field.type}", place)
            keep_null = field.type == "string" and not field.quantity
            pairs = {
                key: "" if item is None and keep_null else self.value(field, item, f"{place}.{key}")
                for key, item in value.items()
                if item is not None or keep_null
            }
            return pairs or None
        return self.value(field, value, place)

    def value(self, field: schema.Field, value: Any, place: str) -> Any:
        if field.quantity:
            return self.quantity(value, place)
        if schema.is_type(field.type):
            return self.struct(field.type, value, place)
        if field.type == "time":
            return self.time(value, field.micro_time, place)
        return self.scalar(field.type, value, place)

    def quantity(self, value: Any, place: str) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.wrong(value, "resource.Quantity", place)
        try:
            return quantity.canonical(str(value))
        except ValueError as error:
            raise BadRequest(
                f'{self.kind} in version "v1" cannot be handled as a {self.kind}: {place}: {error}'
            ) from error

    def time(self, value: Any, micro: bool, place: str) -> str:
        if not isinstance(value, str):
            raise self.wrong(value, "v1.Time", place)
        try:
            moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError as error:
            raise BadRequest(
                f'{self.kind} in version "v1" cannot be handled as a {self.kind}: {place}: '
                f'parsing time "{value}": want RFC 3339, as 2026-01-02T03:04:05Z'
            ) from error
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")

    def scalar(self, name: str, value: Any, place: str) -> Any:
        match name:
            case "any":
                return value
            case "int-or-string":
                fine = isinstance(value, str | int) and not isinstance(value, bool)
            case "string":
                fine = isinstance(value, str)
            case "boolean":
                fine = isinstance(value, bool)
            case "integer":
                if isinstance(value, float) and value.is_integer():
                    value = int(value)
                fine = isinstance(value, int) and not isinstance(value, bool)
            case _:
                fine = isinstance(value, int | float) and not isinstance(value, bool)
        if not fine:
            raise self.wrong(value, _GO.get(name, "intstr.IntOrString"), place)
        return value


def decode(kind: str, obj: Any) -> tuple[dict[str, Any], list[str]]:
    """The object as held, and the paths of unknown fields; BadRequest for a wrong type."""
    decoder = _Decoder(kind)
    if _depth(obj) > _MAX_DEPTH:
        raise BadRequest(f"the object is nested deeper than {_MAX_DEPTH} levels")
    return decoder.struct(kind, obj, ""), decoder.unknown


def _depth(value: Any) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        item, level = waiting.pop()
        deepest = max(deepest, level)
        children = item.values() if isinstance(item, dict) else item
        if isinstance(item, dict | list):
            waiting.extend((child, level + 1) for child in children)
    return deepest
