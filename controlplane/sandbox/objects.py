"""Small readers and writers of Kubernetes objects as dicts."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from controlplane.sandbox.kinds import KindInfo

Object = dict[str, Any]
# the alphabet of names.SimpleNameGenerator: no vowels, no look-alikes
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def clone(value: Any) -> Any:
    """A deep copy of JSON data (several times faster than copy.deepcopy)."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def random_suffix(length: int = 5) -> str:
    """The suffix that generateName gets."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def new_uid() -> str:
    return str(uuid.uuid4())


def meta(obj: Object) -> Object:
    """The object's metadata ({} when it has none)."""
    return obj.get("metadata") or {}


def name_of(obj: Object) -> str:
    return meta(obj).get("name") or ""


def namespace_of(obj: Object) -> str:
    return meta(obj).get("namespace") or ""


def finalizers_of(obj: Object) -> list[str]:
    return list(meta(obj).get("finalizers") or ())


def same(left: Object, right: Object) -> bool:
    """Whether two versions say the same: resourceVersion and the times of managedFields apart."""
    return _comparable(left) == _comparable(right)


def _comparable(obj: Object) -> Object:
    metadata = {k: v for k, v in meta(obj).items() if k != "resourceVersion"}
    if "managedFields" in metadata:
        metadata["managedFields"] = [
            {k: v for k, v in entry.items() if k != "time"} for entry in metadata["managedFields"]
        ]
    return {**obj, "metadata": metadata}


def ordered(kind: KindInfo, obj: Object) -> Object:
    """The object with kind and apiVersion first: a list's items are sent without them."""
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    return {"kind": kind.kind, "apiVersion": kind.api_version, **rest}
