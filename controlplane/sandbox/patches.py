"""JSON patch (RFC 6902), JSON merge patch (RFC 7396) and strategic merge patch.

Strategic merge follows apimachinery `pkg/util/strategicpatch`: lists with a patchMergeKey merge
item by item; `$patch: delete|replace|merge`, `$deleteFromPrimitiveList/<f>`,
`$setElementOrder/<f>` and `$retainKeys` are understood.
"""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer

from controlplane.sandbox import schema
from controlplane.sandbox.errors import BadRequest, Cause, Invalid
from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object, clone, name_of

_DELETE_SCALARS = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"
_DIRECTIVE = "$patch"
_MAX_OPERATIONS = 10_000


def json_patch(kind: KindInfo, obj: Object, patch: Any) -> Any:
    """Apply RFC 6902 operations; Invalid when one of them doesn't apply (a failed `test` too)."""
    if not isinstance(patch, list):
        raise BadRequest("a JSON patch is a list of operations")
    if len(patch) > _MAX_OPERATIONS:
        raise BadRequest(f"a JSON patch has at most {_MAX_OPERATIONS} operations")
    try:
        result = jsonpatch.JsonPatch(patch).apply(clone(obj))
    except (jsonpatch.JsonPatchConflict, jsonpatch.JsonPatchTestFailed) as error:
        raise Invalid(
            kind, name_of(obj), [Cause.invalid("patch", "", f"the patch doesn't apply: {error}")]
        ) from error
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        KeyError,
        TypeError,
    ) as error:
        raise BadRequest(f"error decoding JSON patch: {error}") from error
    return result


def merge_patch(obj: Object, patch: Any) -> Any:
    """Apply RFC 7396: null removes, objects merge, anything else replaces."""
    return _merge(obj, patch)


def strategic_merge_patch(kind: KindInfo, obj: Object, patch: Any) -> Object:
    """Apply a strategic merge patch by the kind's schema."""
    return _object(_strategic(kind.kind, clone(obj), _object(patch)))


def _object(value: Any) -> Object:
    if not isinstance(value, dict):
        raise BadRequest("the patch, and what it makes, must be a JSON object")
    return value


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _strategic(type_name: str, target: Object, patch: Object) -> Object:
    """Merge `patch` into `target`, a struct of the named type (or a free-form map)."""
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: clone(value) for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadRequest(f"unknown patch type {directive!r}: want delete, replace or merge")
    if (kept := patch.get(_RETAIN)) is not None:
        target = {key: value for key, value in target.items() if key in kept}
    known = schema.type_of(type_name)
    for key, value in patch.items():
        if key in (_DIRECTIVE, _RETAIN) or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_SCALARS):
            _delete_scalars(target, key.removeprefix(_DELETE_SCALARS), value)
            continue
        field = known.fields.get(key) if known else None
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            before = target.get(key)
            inner = field.type if field and field.shape == "value" else ""
            merged = _strategic(inner, before if isinstance(before, dict) else {}, value)
            if value.get(_DIRECTIVE) == "delete":
                target.pop(key, None)
            else:
                target[key] = merged
        elif isinstance(value, list) and field is not None and field.merge_key is not None:
            order = patch.get(_ORDER + key)
            target[key] = _merge_list(field, target.get(key) or [], value, order)
        else:
            target[key] = clone(value)
    for key, order in patch.items():
        name = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and name not in patch and known and name in known.fields:
            merge_key = known.fields[name].merge_key
            if merge_key is not None and name in target:
                target[name] = _ordered(target[name], order, target[name], merge_key)
    return target


def _delete_scalars(target: Object, name: str, values: Any) -> None:
    if isinstance(target.get(name), list):
        target[name] = [item for item in target[name] if item not in values]


def _merge_list(field: schema.Field, old: list, patch: list, order: Any) -> list:
    """Merge a list by its key, or as a set when it holds scalars."""
    key = field.merge_key or ""
    if not key:
        result = [*old, *(item for item in patch if item not in old)]
        return _ordered(result, order or patch, old, key)
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [
            {k: clone(v) for k, v in item.items() if k != _DIRECTIVE}
            for item in patch
            if set(item) != {_DIRECTIVE}
        ]
    result = list(old)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise BadRequest(
                f"map: {item} does not contain declared merge key: {key} (in {field.name})"
            )
        at = next((i for i, mine in enumerate(result) if mine.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [mine for mine in result if mine.get(key) != item[key]]
        elif at is None:
            result.append(_strategic(field.type, {}, item))
        else:
            result[at] = _strategic(field.type, result[at], item)
    return _ordered(result, order or patch, old, key)


def _ordered(items: list, order: Any, before: list, key: str) -> list:
    """The merged list in strategicpatch's order (`mergeSortedSlice`).

    Items named in `order` (the patch, or $setElementOrder) keep its order; each other one goes
    before the first of them that came after it in the list as it was.
    """

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    places = [identity(item) for item in before]
    right = [item for item in items if identity(item) in wanted]
    right.sort(key=lambda item: wanted.index(identity(item)))
    left = [item for item in items if identity(item) not in wanted]
    result = []
    while left and right:
        mine, theirs = identity(left[0]), identity(right[0])
        known = mine in places and theirs in places
        first = known and places.index(mine) < places.index(theirs)
        result.append((left if first else right).pop(0))
    return result + left + right
