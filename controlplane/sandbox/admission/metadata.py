"""Rules for every object's metadata (apimachinery `pkg/api/validation/objectmeta.go`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from controlplane.sandbox.errors import BadRequest, Cause, Forbidden, NotFound
from controlplane.sandbox.kinds import NAMESPACE, KindInfo
from controlplane.sandbox.objects import Object, finalizers_of, meta, name_of, namespace_of

if TYPE_CHECKING:
    from controlplane.sandbox.store import Store

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_RULE_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)
_RULE_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character"
)
_RULE_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character"
)
_RULE_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character"
)
_ANNOTATIONS_LIMIT = 256 * 1024


def check_namespace(store: Store, kind: KindInfo, obj: Object) -> None:
    """Nothing is created in a namespace that is absent or going."""
    if not kind.namespaced:
        meta(obj).pop("namespace", None)
        return
    name = namespace_of(obj)
    if not name:
        raise BadRequest(f"{kind.resource}: metadata.namespace is required")
    namespace = store.find(NAMESPACE, None, name)
    if namespace is None:
        raise NotFound.of(NAMESPACE, name)
    if meta(namespace).get("deletionTimestamp"):
        raise Forbidden(
            f'{kind.resource} "{name_of(obj)}" is forbidden: unable to create new content in '
            f"namespace {name} because it is being terminated",
            details={
                "name": name_of(obj),
                "kind": kind.plural,
                "causes": [
                    {
                        "reason": "NamespaceTerminating",
                        "message": f"namespace {name} is being terminated",
                        "field": "metadata.namespace",
                    }
                ],
            },
        )


def validate(kind: KindInfo, obj: Object) -> list[Cause]:
    """Name, labels, annotations, owners."""
    metadata = meta(obj)
    causes: list[Cause] = []
    name = metadata.get("name") or ""
    if not name:
        causes.append(Cause.required("metadata.name", "name or generateName is required"))
    elif kind is NAMESPACE:
        if not _LABEL.match(name) or len(name) > 63:
            causes.append(Cause.invalid("metadata.name", name, _RULE_LABEL))
    elif not _SUBDOMAIN.match(name) or len(name) > 253:
        causes.append(Cause.invalid("metadata.name", name, _RULE_SUBDOMAIN))
    causes += labels(metadata.get("labels"), "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if not _is_key(key.lower()):
            causes.append(Cause.invalid("metadata.annotations", key, _RULE_KEY))
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        causes.append(
            Cause(
                "FieldValueTooLong",
                "metadata.annotations",
                f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes",
            )
        )
    return causes + _owners(metadata.get("ownerReferences") or [])


def validate_update(new: Object, old: Object) -> list[Cause]:
    """What is being deleted gets no new finalizers."""
    added = set(finalizers_of(new)) - set(finalizers_of(old))
    if added and meta(old).get("deletionTimestamp"):
        return [
            Cause.forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers {sorted(added)}",
            )
        ]
    return []


def labels(values: dict[str, Any] | None, field: str) -> list[Cause]:
    """Keys are qualified names, values at most 63 characters of the label alphabet."""
    causes = []
    for key, value in (values or {}).items():
        if not _is_key(key):
            causes.append(Cause.invalid(field, key, _RULE_KEY))
        if value and (len(value) > 63 or not _QUALIFIED.match(value)):
            causes.append(Cause.invalid(field, value, _RULE_VALUE))
    return causes


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (not _SUBDOMAIN.match(prefix) or len(prefix) > 253):
        return False
    return len(name) <= 63 and bool(_QUALIFIED.match(name))


def _owners(owners: list[dict[str, Any]]) -> list[Cause]:
    causes = []
    for index, owner in enumerate(owners):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                causes.append(Cause.required(f"metadata.ownerReferences[{index}].{key}"))
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        causes.append(
            Cause.invalid(
                "metadata.ownerReferences",
                len(controllers),
                "Only one reference can have Controller set to true",
            )
        )
    return causes
