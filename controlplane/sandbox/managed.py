"""metadata.managedFields: who owns which field, and server-side apply.

Source: apimachinery `pkg/util/managedfields` and structured-merge-diff `merge/update.go`.
"""

from __future__ import annotations

import copy
from typing import Any

from controlplane.sandbox import schema
from controlplane.sandbox.clock import rfc3339
from controlplane.sandbox.errors import ApplyConflict
from controlplane.sandbox.fieldsets import (
    Path,
    display,
    from_fields,
    item_element,
    leaves,
    to_fields,
)
from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object, clone, meta

# (manager, operation, subresource)
_Key = tuple[str, str, str]


class Owners:
    """The managers of one object, each with its set of paths."""

    def __init__(self, entries: list[dict[str, Any]] | None) -> None:
        self.sets: dict[_Key, set[Path]] = {}
        self.times: dict[_Key, str] = {}
        for entry in entries or ():
            key = (entry["manager"], entry["operation"], entry.get("subresource", ""))
            self.sets[key] = from_fields(entry.get("fieldsV1") or {})
            self.times[key] = entry.get("time", "")

    def write(self, kind: KindInfo, obj: Object) -> None:
        """Store them in the object's metadata."""
        entries = []
        for key, paths in self.sets.items():
            if not paths:
                continue
            entry = {
                "manager": key[0],
                "operation": key[1],
                "apiVersion": kind.api_version,
                "time": self.times[key],
                "fieldsType": "FieldsV1",
                "fieldsV1": to_fields(paths),
            }
            if key[2]:
                entry["subresource"] = key[2]
            entries.append(entry)
        if entries:
            obj["metadata"]["managedFields"] = entries
        else:
            obj["metadata"].pop("managedFields", None)

    def keep(self, present: set[Path]) -> None:
        """Forget paths that the object no longer has."""
        for key in self.sets:
            self.sets[key] &= present

    def take(self, key: _Key, paths: set[Path], moment: str) -> None:
        """Give `paths` to one manager and to no other."""
        for other in self.sets:
            if other != key:
                self.sets[other] = self.sets[other] - paths
        if paths:
            self.sets[key] = self.sets.get(key, set()) | paths
            self.times[key] = moment


def record_change(
    kind: KindInfo,
    old: Object | None,
    new: Object,
    manager: str,
    subresource: str | None,
    now: float,
) -> None:
    """Record in `new` that `manager` wrote what differs from `old`.

    A client that sends `managedFields: []` clears them, as on the real server.
    """
    before = leaves(kind.kind, old) if old is not None else {}
    after = leaves(kind.kind, new)
    if old is None and "status" in new and kind.kind != "Node":
        after = {path: value for path, value in after.items() if path[0] != "f:status"}
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    owners = Owners(meta(old).get("managedFields") if old is not None else None)
    owners.keep(set(after))
    owners.take((manager, "Update", subresource or ""), changed, rfc3339(now))
    owners.write(kind, new)


def apply(
    kind: KindInfo,
    live: Object,
    applied: Object,
    manager: str,
    *,
    force: bool,
    subresource: str | None,
    now: float,
) -> Object:
    """Server-side apply of `applied` on the live object; ApplyConflict unless `force`.

    The result still needs `Store.prepare_update(..., managed=False)`.
    """
    key: _Key = (manager, "Apply", subresource or "")
    wanted = leaves(kind.kind, applied, maps=False)
    owners = Owners(meta(live).get("managedFields"))
    current = leaves(kind.kind, live)
    differing = {p for p, v in wanted.items() if p in current and current[p] != v}
    conflicts = sorted(
        (owner[0] if owner[1] == "Apply" else f'{owner[0]}" using {kind.api_version}', path)
        for owner, paths in owners.sets.items()
        if owner != key
        for path in paths & differing
    )
    if conflicts and not force:
        raise ApplyConflict([(name.rstrip('"'), display(path)) for name, path in conflicts])
    merged = _merge_struct(schema.types()[kind.kind], clone(live), applied)
    dropped = owners.sets.get(key, set()) - set(wanted)
    for other, paths in owners.sets.items():
        if other != key:
            dropped -= paths
            owners.sets[other] = paths - differing
    # what others still own below a dropped item keeps the item
    kept = {path for other, paths in owners.sets.items() if other != key for path in paths}
    gone: list[Path] = []
    for path in sorted(dropped, key=len):  # an item goes whole, with the defaults inside it
        wanted_below = any(other[: len(path)] == path for other in kept | set(wanted))
        if not wanted_below and not any(path[: len(above)] == above for above in gone):
            _remove(kind, merged, path)
            gone.append(path)
    before = owners.sets.get(key)
    owners.sets[key] = set(wanted)
    if before != owners.sets[key] or differing or not owners.times.get(key):
        owners.times[key] = rfc3339(now)
    owners.keep(set(leaves(kind.kind, merged)))
    owners.write(kind, merged)
    return merged


def _merge_struct(kind: schema.Type, live: Object, applied: Object) -> Object:
    for name, value in applied.items():
        field = kind.fields.get(name)
        if field is None or (kind.name == "ObjectMeta" and name == "managedFields"):
            continue
        live[name] = _merge_field(field, live.get(name), value)
    return live


def _merge_field(field: schema.Field, live: Any, applied: Any) -> Any:
    if field.atomic or live is None or applied is None:
        return clone(applied)
    if field.shape == "list":
        return _merge_items(field, live, applied)
    if field.shape == "map":
        return {**live, **copy.copy(applied)}
    inner = schema.type_of(field.type)
    return _merge_struct(inner, live, applied) if inner else clone(applied)


def _merge_items(field: schema.Field, live: list[Any], applied: list[Any]) -> list[Any]:
    inner = schema.type_of(field.type)
    elements = [item_element(field, item) for item in live]
    result = list(live)
    for item in applied:
        element = item_element(field, item)
        if element not in elements:
            result.append(clone(item))
        elif inner is not None and field.type not in schema.ATOMIC_TYPES and field.map_keys:
            at = elements.index(element)
            result[at] = _merge_struct(inner, result[at], item)
        else:
            result[elements.index(element)] = clone(item)
    return result


def _remove(kind: KindInfo, obj: Object, path: Path) -> None:
    """Take one path out of the object, and containers that this leaves empty."""
    trail: list[tuple[Any, Any]] = []
    node: Any = obj
    known: schema.Type | None = schema.types()[kind.kind]
    field: schema.Field | None = None
    for element in path:
        if element.startswith("f:"):
            name = element[2:]
            if not isinstance(node, dict) or name not in node:
                return
            trail.append((node, name))
            node = node[name]
            field = known.fields.get(name) if known else None
            shape = field.shape if field else "value"
            known = schema.type_of(field.type) if field and shape != "map" else None
        else:
            if field is None or not isinstance(node, list):
                return
            at = next(
                (i for i, item in enumerate(node) if item_element(field, item) == element), None
            )
            if at is None:
                return
            trail.append((node, at))
            node = node[at]
            known = schema.type_of(field.type)
    container, step = trail.pop()
    del container[step]
    while trail and not container:
        container, step = trail.pop()
        del container[step]
