"""Discovery: which groups, versions and resources there are."""

from __future__ import annotations

from functools import cache
from typing import Any

from controlplane.sandbox.kinds import KINDS, NAMESPACE, POD, KindInfo

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+concertina-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# Scale and Eviction are subresources only: kubectl takes a group without resources for an error
_GROUPS = tuple(dict.fromkeys(kind.group for kind in KINDS if kind.group))


@cache
def document(path: str) -> dict[str, Any] | None:
    """The discovery document at `path`, or None."""
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(name) for name in _GROUPS]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resources("", "v1")
        case ["apis", group] if group in _GROUPS:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["apis", group, "v1"] if group in _GROUPS:
            return _resources(group, "v1")
    return None


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(group: str, version: str) -> dict[str, Any]:
    resources: list[dict[str, Any]] = []
    for kind in KINDS:
        if (kind.group, kind.version) == (group, version):
            resources += _of_kind(kind)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _of_kind(kind: KindInfo) -> list[dict[str, Any]]:
    base = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
    }
    verbs = [v for v in _VERBS if not (kind is NAMESPACE and v == "deletecollection")]
    first: dict[str, Any] = {**base, "verbs": verbs}
    if kind.short_names:
        first["shortNames"] = list(kind.short_names)
    if kind.categories:
        first["categories"] = list(kind.categories)
    found = [first]

    def sub(name: str, verbs: list[str], **more: str) -> None:
        entry = {**base, "name": f"{kind.plural}/{name}", "singularName": "", "verbs": verbs}
        found.append({**entry, **more})

    if kind.has_status:
        sub("status", ["get", "patch", "update"])
    if kind.has_scale:
        sub("scale", ["get", "patch", "update"], group="autoscaling", version="v1", kind="Scale")
    if kind is POD:
        sub("binding", ["create"], kind="Binding")
        sub("eviction", ["create"], group="policy", version="v1", kind="Eviction")
        sub("log", ["get"])
    if kind is NAMESPACE:
        sub("finalize", ["update"])
    return found
