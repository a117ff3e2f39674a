"""Digests of what a plan is made from, part by part.

A part (a node, a pod, a report) has a digest of its own; a collection's is the sum of its parts',
so it doesn't depend on their order, and a change of one part costs one part.
"""

from __future__ import annotations

import dataclasses
import hashlib
import marshal
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any

from controlplane.engine.policy import PolicySet
from controlplane.engine.snapshot import ClusterSnapshot

MODULUS = 2**256
PLAIN = (str, int, float, bool, type(None))
#: fields of a snapshot that are collections of many parts
SEQUENCES = ("nodes", "pods", "workloads", "in_flight")
MAPPINGS = ("reports", "history", "node_history", "demand_history", "inflow")


def of_part(value: object, key: object = None) -> int:
    """The digest of one part (a dataclass), with the key that it has in a mapping."""
    data = _packed((type(value).__name__, key, value))
    return int.from_bytes(hashlib.sha256(data).digest(), "big")


def of_parts(parts: Iterable[int]) -> int:
    return sum(parts) % MODULUS


def of_mapping(mapping: Mapping[Any, object]) -> int:
    return of_parts(of_part(value, key) for key, value in mapping.items())


def digest(snapshot: ClusterSnapshot, policies: PolicySet, now: float) -> str:
    """sha256 of everything that a plan is made from, whatever order it was observed in."""
    sums = {name: of_parts(map(of_part, getattr(snapshot, name))) for name in SEQUENCES}
    sums.update({name: of_mapping(getattr(snapshot, name)) for name in MAPPINGS})
    return combined(snapshot, policies, now, sums)


def combined(
    snapshot: ClusterSnapshot, policies: PolicySet, now: float, sums: Mapping[str, int]
) -> str:
    """The digest, given the sums of the snapshot's collections."""
    head = (snapshot.cluster, float(snapshot.taken_at), snapshot.complete, float(now))
    data = _packed((head, policies, tuple(sorted(sums.items()))))
    return hashlib.sha256(data).hexdigest()


def _packed(value: object) -> bytes:
    """Bytes that equal values share. marshal's version 2 has no references, so they depend on the
    values alone; it is four times as fast as `repr`, and a snapshot has tens of thousands of
    parts."""
    return marshal.dumps(_plain(value), 2)


def _plain(value: Any) -> Any:
    """Lists, text and numbers instead of dataclasses and mappings, in one order."""
    kind = type(value)
    encode = _encoders.get(kind)
    if encode is None:
        encode = _encoders[kind] = _encoder(kind)
    return encode(value)


#: worked out once a type
_encoders: dict[type, Callable[[Any], Any]] = {}


def _encoder(kind: type) -> Callable[[Any], Any]:
    """How values of one type are made plain."""
    if kind in PLAIN:
        return lambda value: value
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, tuple):
        return lambda value: [_plain(item) for item in value]
    if issubclass(kind, Mapping):
        return lambda value: [(_plain(k), _plain(v)) for k, v in sorted(value.items())]
    return _dataclass_encoder(kind)


def _dataclass_encoder(kind: type) -> Callable[[Any], Any]:
    names = [f.name for f in dataclasses.fields(kind)]
    hints = typing.get_type_hints(kind)
    plain = (*PLAIN, str | None, int | None, float | None)
    special = [i for i, name in enumerate(names) if hints[name] not in plain]
    read = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)

    def encode(value: Any) -> list[object]:
        found = list(read(value))
        for i in special:
            item = found[i]
            found[i] = _plain(item) if item else None  # most are empty
        return found

    return encode
