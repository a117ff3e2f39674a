"""Snapshots and policies as JSON, for the mailbox between processes and for replay.

One reader and writer for all of the engine's frozen dataclasses, driven by their annotations.
`FORMAT` is written with each document. Older ones are read too: what they don't have yet gets its
default, which is what an engine of their time went by. Newer ones are refused.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any

from controlplane.engine.policy import PolicySet
from controlplane.engine.snapshot import ClusterSnapshot
from controlplane.engine.types import WorkloadKey

FORMAT = 2
#: 1 had no queues, cohorts, departures, claims, topology, moves and node or demand histories
READABLE = (1, 2)


class FormatError(ValueError):
    """A document that this version can't read."""


def snapshot_to_json(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """A JSON-ready document. `snapshot_from_json` gives back an equal snapshot."""
    return {"format": FORMAT, **to_json(snapshot)}


def snapshot_from_json(document: Mapping[str, Any]) -> ClusterSnapshot:
    """Raises FormatError, naming the field, for a document of a format that isn't READABLE."""
    snapshot: ClusterSnapshot = _read(ClusterSnapshot, document)
    return snapshot


def policies_to_json(policies: PolicySet) -> dict[str, Any]:
    return {"format": FORMAT, **to_json(policies)}


def policies_from_json(document: Mapping[str, Any]) -> PolicySet:
    """Raises FormatError as `snapshot_from_json` does."""
    policies: PolicySet = _read(PolicySet, document)
    return policies


def canonical(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same snapshot with its parts in one order, whatever order they were observed in."""
    return dataclasses.replace(
        snapshot,
        nodes=tuple(sorted(snapshot.nodes, key=lambda n: n.name)),
        pods=tuple(sorted(snapshot.pods, key=lambda p: (p.namespace, p.name, p.uid))),
        workloads=tuple(sorted(snapshot.workloads, key=lambda w: (w.key, w.uid))),
        in_flight=tuple(sorted(snapshot.in_flight, key=lambda f: f.command_id)),
    )


def to_json(value: Any) -> Any:
    """Any of the engine's values (a Plan too) as JSON: keys as text, tuples as lists."""
    if isinstance(value, WorkloadKey):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_key(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def _key(key: Any) -> str:
    if dataclasses.is_dataclass(key) and not isinstance(key, WorkloadKey):
        return "/".join(str(getattr(key, f.name)) for f in dataclasses.fields(key))
    return str(key.value if isinstance(key, Enum) else key)


def _read(cls: type[Any], document: Mapping[str, Any]) -> Any:
    if document.get("format") not in READABLE:
        known = ", ".join(str(version) for version in READABLE)
        raise FormatError(f"format is {document.get('format')!r}; this version reads {known}")
    return _value(cls, document, cls.__name__)


def _value(kind: Any, found: Any, where: str) -> Any:
    """`found` as the annotated type `kind`."""
    try:
        return _convert(kind, found, where)
    except FormatError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise FormatError(f"{where} is {found!r}: {error}") from error


def _convert(kind: Any, found: Any, where: str) -> Any:
    if kind is WorkloadKey:
        return WorkloadKey.parse(found)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return kind(
            **{
                name: _value(hint, found[name], f"{where}.{name}")
                for name, hint in _fields(kind)
                if name in found
            }
        )
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_value(arguments[0], item, where) for item in found)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        key_kind, value_kind = arguments
        return {
            _convert(key_kind, k, where): _value(value_kind, v, where) for k, v in found.items()
        }
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in arguments if a is not type(None))
        return None if found is None else _convert(inner, found, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(found)
    if kind is int and isinstance(found, str):
        return int(found)
    if kind is float and found is not None:
        return float(found)
    return found


@cache
def _fields(cls: type[Any]) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(cls)
    return tuple((f.name, hints[f.name]) for f in dataclasses.fields(cls))
