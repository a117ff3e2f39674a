"""A container's environment and command, as a kubelet makes them.

Source: k8s.io/kubernetes `pkg/kubelet/kubelet_pods.go` (makeEnvironmentVariables) and
`third_party/forked/golang/expansion`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

from controlplane.sandbox.kinds import CONFIGMAP, SECRET, KindInfo
from controlplane.sandbox.objects import Object, meta, name_of, namespace_of
from controlplane.sandbox.scheduler.requests import amounts
from controlplane.sandbox.store import Store

_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")
_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "status.hostIP": ("status", "hostIP"),
    "status.podIP": ("status", "podIP"),
}


class ConfigMissing(Exception):
    """A reference that can't be resolved (yet): CreateContainerConfigError."""


def environment(store: Store, pod: Object, container: Object) -> dict[str, str]:
    """The container's variables in order; ConfigMissing while something isn't there."""
    values: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        values.update(_from_source(store, pod, source))
    for variable in container.get("env") or ():
        if "valueFrom" in variable:
            value = _value_from(store, pod, container, variable["valueFrom"])
            if value is not None:
                values[variable["name"]] = value
        else:
            values[variable["name"]] = expand(variable.get("value") or "", values)
    return values


def command_line(container: Object, values: Mapping[str, str]) -> list[str]:
    """Command and arguments with $(NAME) expanded; empty when the image would decide."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(word, values) for word in words] if container.get("command") else []


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace $(NAME); $$ is a dollar sign, and what isn't known stays as it is."""

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return values.get(found[1], found[0])

    return _REFERENCE.sub(one, text)


def _from_source(store: Store, pod: Object, source: Object) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for key, kind in (("configMapRef", CONFIGMAP), ("secretRef", SECRET)):
        if key in source:
            found = _referred(store, pod, kind, source[key])
            data = _data_of(kind, found) if found else {}
            return {prefix + name: value for name, value in data.items()}
    return {}


def _value_from(store: Store, pod: Object, container: Object, source: Object) -> str | None:
    if field := source.get("fieldRef"):
        return field_value(pod, field["fieldPath"])
    if field := source.get("resourceFieldRef"):
        return _resource_value(container, field)
    for key, kind in (("configMapKeyRef", CONFIGMAP), ("secretKeyRef", SECRET)):
        if key in source:
            found = _referred(store, pod, kind, source[key])
            data = _data_of(kind, found) if found else {}
            if source[key]["key"] in data:
                return data[source[key]["key"]]
            if source[key].get("optional"):
                return None
            place = f"{namespace_of(pod)}/{source[key]['name']}"
            raise ConfigMissing(f"couldn't find key {source[key]['key']} in {kind.kind} {place}")
    return None


def field_value(pod: Object, path: str) -> str:
    """A downward API field; ConfigMissing names one that isn't supported."""
    if found := _SUBSCRIPT.match(path):
        return str((meta(pod).get(found[1]) or {}).get(found[2], ""))
    if path not in _FIELDS:
        known = ", ".join(sorted(_FIELDS))
        raise ConfigMissing(
            f"fieldPath {path!r} is not supported: use one of {known}, metadata.labels['KEY'] or "
            "metadata.annotations['KEY']"
        )
    group, name = _FIELDS[path]
    return str((pod.get(group) or {}).get(name, ""))


def _resource_value(container: Object, field: Object) -> str:
    group, _, resource = field["resource"].partition(".")
    found = amounts((container.get("resources") or {}).get(group) or {})
    value = found.get(resource, 0)
    return str(-(-value // 1000) if resource == "cpu" else value)


def _referred(store: Store, pod: Object, kind: KindInfo, reference: Object) -> Object | None:
    found = store.find(kind, namespace_of(pod), reference["name"])
    if found is None and not reference.get("optional"):
        raise ConfigMissing(f'{kind.plural[:-1]} "{reference["name"]}" not found')
    return found


def _data_of(kind: KindInfo, obj: Object) -> dict[str, str]:
    data = obj.get("data") or {}
    if kind is CONFIGMAP:
        return dict(data)
    return {name: base64.b64decode(text).decode(errors="replace") for name, text in data.items()}


def describe(pod: Object) -> str:
    """`namespace/name`, for messages."""
    return f"{namespace_of(pod)}/{name_of(pod)}"
