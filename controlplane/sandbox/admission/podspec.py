"""Defaults and rules of a pod's spec, wherever it stands (a pod or a template).

Source: k8s.io/kubernetes `pkg/apis/core/v1/defaults.go` and `pkg/apis/core/validation`.
"""

from __future__ import annotations

import re
from typing import Any

from controlplane.sandbox.errors import Cause
from controlplane.sandbox.objects import Object
from controlplane.sandbox.schema import quantity

_DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_PROBE = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_OPERATORS = ("Exists", "Equal", "Lt", "Gt")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# resources that may be requested below their limit; all others must be whole and equal
_OVERCOMMITTABLE = re.compile(r"^(cpu|memory|ephemeral-storage|(.*/)?kubernetes\.io/.*)$")


def default(spec: Object) -> None:
    """Fill what the client left out of a pod's spec."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_container(container: Object) -> None:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    for name, limit in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, limit)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            for key, value in _PROBE.items():
                container[name].setdefault(key, value)
            if "httpGet" in container[name]:
                container[name]["httpGet"].setdefault("path", "/")
                container[name]["httpGet"].setdefault("scheme", "HTTP")


def _default_volume(volume: Object) -> None:
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if name in volume:
            volume[name].setdefault("defaultMode", 420)


def validate(spec: Object, field: str) -> list[Cause]:
    """What is wrong with a pod's spec; `field` is where it stands, as `spec.template.spec`."""
    causes: list[Cause] = []
    if not spec.get("containers"):
        causes.append(Cause.required(f"{field}.containers"))
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            causes += _container(container, f"{field}.{group}[{index}]", seen, group)
    policies = ["Always", "OnFailure", "Never"]
    if spec.get("restartPolicy", "Always") not in policies:
        causes.append(Cause.unsupported(f"{field}.restartPolicy", spec["restartPolicy"], policies))
    grace = spec.get("terminationGracePeriodSeconds", 30)
    if grace < 0:
        causes.append(
            Cause.invalid(
                f"{field}.terminationGracePeriodSeconds",
                grace,
                "must be greater than or equal to 0",
            )
        )
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        causes += _toleration(toleration, f"{field}.tolerations[{index}]")
    return causes


def _container(container: Object, field: str, seen: set[str], group: str) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name") or ""
    if not name:
        causes.append(Cause.required(f"{field}.name"))
    elif not _DNS_LABEL.match(name) or len(name) > 63:
        causes.append(
            Cause.invalid(
                f"{field}.name",
                name,
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters "
                "or '-', and must start and end with an alphanumeric character",
            )
        )
    elif name in seen:
        causes.append(Cause("FieldValueDuplicate", f"{field}.name", f'Duplicate value: "{name}"'))
    seen.add(name)
    if not container.get("image"):
        causes.append(Cause.required(f"{field}.image"))
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            causes.append(Cause.required(f"{field}.env[{index}].name"))
        if variable.get("value") and variable.get("valueFrom"):
            causes.append(
                Cause.invalid(
                    f"{field}.env[{index}].valueFrom",
                    "",
                    "may not be specified when `value` is not empty",
                )
            )
    return causes + _resources(container.get("resources") or {}, f"{field}.resources")


def _resources(resources: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    limits: dict[str, Any] = resources.get("limits") or {}
    requests: dict[str, Any] = resources.get("requests") or {}
    for group, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            place = f"{field}.{group}[{name}]"
            amount = quantity.parse(str(text))
            if amount < 0:
                causes.append(Cause.invalid(place, text, "must be greater than or equal to 0"))
            if not _OVERCOMMITTABLE.match(name) and amount != amount.to_integral_value():
                causes.append(Cause.invalid(place, text, "must be an integer"))
            if "/" not in name and name not in ("cpu", "memory", "ephemeral-storage"):
                causes.append(
                    Cause.invalid(place, name, "must be a standard resource for containers")
                )
    for name, text in requests.items():
        asked = quantity.parse(str(text))
        limit = None if name not in limits else quantity.parse(str(limits[name]))
        place = f"{field}.requests"
        if _OVERCOMMITTABLE.match(name):
            if limit is not None and asked > limit:
                why = f"must be less than or equal to {name} limit of {limits[name]}"
                causes.append(Cause.invalid(place, text, why))
        elif limit is None:
            causes.append(
                Cause.required(
                    f"{field}.limits", "Limit must be set for non overcommitable resources"
                )
            )
        elif asked != limit:
            why = f"must be equal to {name} limit of {limits[name]}"
            causes.append(Cause.invalid(place, text, why))
    return causes


def _toleration(toleration: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    operator = toleration.get("operator") or "Equal"
    if operator not in _OPERATORS:
        causes.append(Cause.unsupported(f"{field}.operator", operator, list(_OPERATORS)))
    if not toleration.get("key") and operator != "Exists":
        causes.append(
            Cause.invalid(
                f"{field}.operator",
                operator,
                "operator must be Exists when `key` is empty, which means match all values and "
                "all keys",
            )
        )
    if operator == "Exists" and toleration.get("value"):
        causes.append(
            Cause.invalid(
                f"{field}.operator",
                toleration["value"],
                "value must be empty when `operator` is 'Exists'",
            )
        )
    effect = toleration.get("effect")
    if effect and effect not in _EFFECTS:
        causes.append(Cause.unsupported(f"{field}.effect", effect, list(_EFFECTS)))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        causes.append(
            Cause.invalid(
                f"{field}.effect",
                effect or "",
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )
        )
    return causes
