"""Defaults and rules of the smaller kinds."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from controlplane.sandbox.errors import Cause, Forbidden
from controlplane.sandbox.kinds import PRIORITYCLASS, KindInfo
from controlplane.sandbox.objects import Object, clone, meta, name_of, namespace_of

if TYPE_CHECKING:
    from controlplane.sandbox.store import Store

_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_POLICIES = ["PreemptLowerPriority", "Never"]
_HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def default_namespace(store: Store, namespace: Object) -> None:
    spec = namespace.setdefault("spec", {})
    if not meta(namespace).get("deletionTimestamp"):
        spec.setdefault("finalizers", ["kubernetes"])
    namespace.setdefault("status", {}).setdefault("phase", "Active")
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = name_of(namespace)


def default_node(store: Store, node: Object) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    if "capacity" in status and "allocatable" not in status:
        status["allocatable"] = clone(status["capacity"])


def validate_node(node: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    seen = set()
    for index, taint in enumerate(node["spec"].get("taints") or ()):
        # the real server's name for it (ValidateNode)
        field = f"metadata.taints[{index}]"
        if not taint.get("key"):
            causes.append(Cause.required(f"{field}.key"))
        if taint.get("effect") not in _EFFECTS:
            causes.append(Cause.unsupported(f"{field}.effect", taint.get("effect") or "", _EFFECTS))
        pair = (taint.get("key"), taint.get("effect"))
        if pair in seen:
            causes.append(
                Cause(
                    "FieldValueDuplicate",
                    field,
                    f"Duplicate value: {taint}: taints must be unique by key and effect pair",
                )
            )
        seen.add(pair)
    return causes


def default_priority_class(store: Store, priority: Object) -> None:
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")
    priority.setdefault("value", 0)


def admit_priority_class(store: Store, kind: KindInfo, priority: Object) -> None:
    """Only one class may be the default of the cluster."""
    if not priority.get("globalDefault"):
        return
    for other in store.list(PRIORITYCLASS):
        if other.get("globalDefault"):
            name = name_of(priority)
            raise Forbidden(
                f'{kind.resource} "{name}" is forbidden: PriorityClass {name_of(other)} is '
                "already marked as default. Only one default can exist",
                details={"name": name, "group": kind.group, "kind": kind.plural},
            )


def validate_priority_class(priority: Object, old: Object | None) -> list[Cause]:
    causes: list[Cause] = []
    name, value = name_of(priority), priority["value"]
    if name.startswith("system-"):
        if _SYSTEM.get(name) != value:
            causes.append(
                Cause.forbidden(
                    "metadata.name",
                    "priority class names with 'system-' prefix are reserved for system use only",
                )
            )
    elif value > _HIGHEST_USER_PRIORITY:
        causes.append(
            Cause.forbidden(
                "value",
                f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}",
            )
        )
    if priority["preemptionPolicy"] not in _POLICIES:
        causes.append(
            Cause.unsupported("preemptionPolicy", priority["preemptionPolicy"], _POLICIES)
        )
    if old is not None:
        if value != old["value"]:
            causes.append(Cause.forbidden("value", "may not be changed in an update."))
        if priority["preemptionPolicy"] != old["preemptionPolicy"]:
            causes.append(
                Cause.invalid(
                    "preemptionPolicy", priority["preemptionPolicy"], "field is immutable"
                )
            )
    return causes


def default_secret(store: Store, secret: Object) -> None:
    """`stringData` is write-only: it goes into `data`."""
    secret.setdefault("type", "Opaque")
    for key, text in (secret.pop("stringData", None) or {}).items():
        encoded = base64.b64encode(text.encode()).decode()
        secret.setdefault("data", {})[key] = encoded


def validate_secret(secret: Object, old: Object | None) -> list[Cause]:
    causes = _keys(secret.get("data") or {}, "data")
    for key, text in (secret.get("data") or {}).items():
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            causes.append(Cause.invalid(f"data[{key}]", "<redacted>", "is not base64"))
    if old is not None and secret["type"] != old["type"]:
        causes.append(Cause.invalid("type", secret["type"], "field is immutable"))
    return causes + _immutable(secret, old, ("data",))


def validate_config_map(config: Object, old: Object | None) -> list[Cause]:
    causes = _keys(config.get("data") or {}, "data")
    causes += _keys(config.get("binaryData") or {}, "binaryData")
    return causes + _immutable(config, old, ("data", "binaryData"))


def _keys(data: Object, field: str) -> list[Cause]:
    rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    return [
        Cause.invalid(f"{field}[{key}]", key, rule)
        for key in data
        if not _KEY.match(key) or len(key) > 253
    ]


def _immutable(obj: Object, old: Object | None, fields: tuple[str, ...]) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    causes = [
        Cause.forbidden(field, "field is immutable when `immutable` is set")
        for field in fields
        if obj.get(field) != old.get(field)
    ]
    if not obj.get("immutable"):
        causes.append(Cause.forbidden("immutable", "field is immutable when `immutable` is set"))
    return causes


def validate_lease(lease: Object, old: Object | None) -> list[Cause]:
    spec = lease.get("spec") or {}
    causes: list[Cause] = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        causes.append(
            Cause.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
        )
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        causes.append(
            Cause.invalid(
                "spec.leaseTransitions", transitions, "must be greater than or equal to 0"
            )
        )
    return causes


def default_event(store: Store, event: Object) -> None:
    event.setdefault("involvedObject", {})


def validate_event(event: Object, old: Object | None) -> list[Cause]:
    involved = event["involvedObject"].get("namespace") or ""
    if involved and involved != namespace_of(event):
        return [
            Cause.invalid("involvedObject.namespace", involved, "does not match event.namespace")
        ]
    return []
