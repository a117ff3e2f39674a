"""Sets of field paths, as managedFields' FieldsV1 has them.

A path is a tuple of elements: `f:name` (a field or map key), `k:{"name":"a"}` (an item of an
associative list), `v:"x"` (an item of a set). A set owns a path when the path is in it; `.` in
FieldsV1 says that the item or map itself is owned. Source: structured-merge-diff, `fieldpath`.
"""

from __future__ import annotations

import json
from typing import Any

from controlplane.sandbox import schema

Path = tuple[str, ...]
# never owned: set by the server (apimachinery `managedfields`, stripped fields)
_STRIPPED = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    ("f:metadata", "f:name"),
    ("f:metadata", "f:namespace"),
    ("f:metadata", "f:creationTimestamp"),
    ("f:metadata", "f:selfLink"),
    ("f:metadata", "f:uid"),
    ("f:metadata", "f:generation"),
    ("f:metadata", "f:managedFields"),
    ("f:metadata", "f:resourceVersion"),
    ("f:metadata", "f:deletionTimestamp"),
    ("f:metadata", "f:deletionGracePeriodSeconds"),
}


_MAP = object()
# a list key that the schema gives a default, when the applied item leaves it out
_KEY_DEFAULTS = {"protocol": "TCP"}


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def item_element(field: schema.Field, item: Any) -> str:
    """The path element of a list item: by its keys, or by its value."""
    keys = field.map_keys
    if keys:
        given = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in keys}
        return "k:" + _dump({key: value for key, value in given.items() if value is not None})
    return "v:" + _dump(item)


def leaves(kind: str, obj: dict[str, Any], *, maps: bool = True) -> dict[Path, Any]:
    """Every owned path of an object with its value (None for the item or map itself).

    `maps=False` leaves maps themselves out, keeping their keys: what an apply owns.
    """
    found: dict[Path, Any] = {}
    _struct(schema.types()[kind], obj, (), found)
    if not maps:
        found = {path: value for path, value in found.items() if value is not _MAP}
    return {
        path: None if value is _MAP else value
        for path, value in found.items()
        if path not in _STRIPPED
    }


def _struct(kind: schema.Type, obj: dict[str, Any], at: Path, found: dict[Path, Any]) -> None:
    for key, value in obj.items():
        field = kind.fields.get(key)
        if field is not None:
            _field(field, value, (*at, f"f:{key}"), found)


def _field(field: schema.Field, value: Any, at: Path, found: dict[Path, Any]) -> None:
    if field.atomic or value is None:
        found[at] = value
    elif field.shape == "list":
        for item in value:
            here = (*at, item_element(field, item))
            inner = schema.type_of(field.type)
            if inner is None or not isinstance(item, dict) or field.type in schema.ATOMIC_TYPES:
                found[here] = item
            else:
                found[here] = None
                _struct(inner, item, here, found)
        if not value:
            found[at] = value
    elif field.shape == "map":
        found[at] = _MAP if value else value
        for key, item in value.items():
            found[(*at, f"f:{key}")] = item
    elif isinstance(value, dict):
        inner = schema.type_of(field.type)
        assert inner is not None
        if value:
            _struct(inner, value, at, found)
        else:
            found[at] = value
    else:
        found[at] = value


def to_fields(paths: set[Path]) -> dict[str, Any]:
    """FieldsV1 of a set of paths."""
    tree: dict[str, Any] = {}
    inner = {path[:n] for path in paths for n in range(1, len(path))}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        if path in inner or path[-1].startswith("k:"):
            node["."] = {}
    return tree


def from_fields(tree: dict[str, Any]) -> set[Path]:
    """The set of paths of a FieldsV1."""
    paths: set[Path] = set()
    waiting: list[tuple[Path, dict[str, Any]]] = [((), tree)]
    while waiting:
        at, node = waiting.pop()
        if at and (not node or "." in node):
            paths.add(at)
        for element, child in node.items():
            if element != ".":
                waiting.append(((*at, element), child))
    return paths


def display(path: Path) -> str:
    """`.spec.containers[name="a"].image`, as conflicts name a field."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            pairs = json.loads(rest)
            text += "[" + ",".join(f"{k}={_dump(v)}" for k, v in pairs.items()) + "]"
        else:
            text += f"[={rest}]"
    return text
