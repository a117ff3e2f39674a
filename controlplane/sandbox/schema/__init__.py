"""The types of the served kinds: fields, requirements, and how their lists merge.

`types.json` (see generate.py) has the fields. The list rules below are the markers of the Go
types (`+listType`, `+listMapKey`, `+mapType`, `+structType`, `patchStrategy`, `patchMergeKey`) in
k8s.io/api, for the lists that aren't simply atomic / replaced.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# (type, field) -> patchMergeKey of strategic merge; "" merges a list of scalars
MERGE_KEYS: dict[tuple[str, str], str] = {
    ("ObjectMeta", "ownerReferences"): "uid",
    ("ObjectMeta", "finalizers"): "",
    ("PodSpec", "containers"): "name",
    ("PodSpec", "initContainers"): "name",
    ("PodSpec", "ephemeralContainers"): "name",
    ("PodSpec", "volumes"): "name",
    ("PodSpec", "imagePullSecrets"): "name",
    ("PodSpec", "hostAliases"): "ip",
    ("PodSpec", "topologySpreadConstraints"): "topologyKey",
    ("PodSpec", "schedulingGates"): "name",
    ("PodSpec", "resourceClaims"): "name",
    ("Container", "env"): "name",
    ("Container", "ports"): "containerPort",
    ("Container", "volumeMounts"): "mountPath",
    ("Container", "volumeDevices"): "devicePath",
    ("PodStatus", "conditions"): "type",
    ("PodStatus", "podIPs"): "ip",
    ("PodStatus", "hostIPs"): "ip",
    ("NodeSpec", "podCIDRs"): "",
    ("NodeStatus", "conditions"): "type",
    ("NodeStatus", "addresses"): "type",
    ("JobStatus", "conditions"): "type",
    ("DeploymentStatus", "conditions"): "type",
    ("ReplicaSetStatus", "conditions"): "type",
    ("NamespaceStatus", "conditions"): "type",
}
# strategic merge keeps only the fields that the patch names (unions)
RETAIN_KEYS = {("DeploymentSpec", "strategy")}
RETAIN_KEYS_ITEMS = {("PodSpec", "volumes"), ("PodSpec", "resourceClaims")}

# (type, field) -> listMapKeys of server-side apply; () is a set of scalars
MAP_KEYS: dict[tuple[str, str], tuple[str, ...]] = {
    **{
        place: (key,) if key else ()
        for place, key in MERGE_KEYS.items()
        if place not in {("PodStatus", "hostIPs"), ("JobStatus", "conditions")}
    },
    ("Container", "ports"): ("containerPort", "protocol"),
    ("PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("ResourceRequirements", "claims"): ("name",),
}
ATOMIC_FIELDS = {("PodSpec", "nodeSelector")}
ATOMIC_TYPES = {
    "ConfigMapKeySelector",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "ResourceFieldSelector",
    "SecretKeySelector",
    "SecretReference",
    "TypedLocalObjectReference",
}

QUANTITIES = {
    ("ResourceRequirements", "limits"),
    ("ResourceRequirements", "requests"),
    ("PodSpec", "overhead"),
    ("NodeStatus", "capacity"),
    ("NodeStatus", "allocatable"),
    ("ContainerStatus", "allocatedResources"),
    ("EmptyDirVolumeSource", "sizeLimit"),
    ("ResourceFieldSelector", "divisor"),
}
MICRO_TIMES = {
    ("LeaseSpec", "acquireTime"),
    ("LeaseSpec", "renewTime"),
    ("Event", "eventTime"),
    ("EventSeries", "lastObservedTime"),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `shape` is value, list or map; `type` names the (item's) type."""

    owner: str
    name: str
    shape: str
    type: str

    @property
    def merge_key(self) -> str | None:
        """Strategic merge: the key of a merged list, "" for scalars, None for replaced lists."""
        return MERGE_KEYS.get((self.owner, self.name))

    @property
    def map_keys(self) -> tuple[str, ...] | None:
        """Server-side apply: the keys of an associative list, () for a set, None for atomic."""
        return MAP_KEYS.get((self.owner, self.name))

    @property
    def atomic(self) -> bool:
        """Whether server-side apply owns this field as a whole."""
        place = (self.owner, self.name)
        if self.shape == "list":
            return self.map_keys is None
        if self.shape == "map":
            return place in ATOMIC_FIELDS
        return self.type in ATOMIC_TYPES or not is_type(self.type)

    @property
    def quantity(self) -> bool:
        return (self.owner, self.name) in QUANTITIES

    @property
    def micro_time(self) -> bool:
        return (self.owner, self.name) in MICRO_TIMES


@dataclass(frozen=True, slots=True)
class Type:
    """A struct: its fields by JSON name and the names of those it can't do without."""

    name: str
    fields: dict[str, Field]
    required: tuple[str, ...]


@cache
def types() -> dict[str, Type]:
    """Every type by its short name (`PodSpec`)."""
    raw = json.loads(Path(__file__).with_name("types.json").read_text())
    return {
        name: Type(
            name,
            {field: _field(name, field, text) for field, text in body["fields"].items()},
            tuple(body.get("required", ())),
        )
        for name, body in raw.items()
    }


def is_type(name: str) -> bool:
    """Whether `name` is a struct and not a scalar."""
    return name in types()


def type_of(name: str) -> Type | None:
    """The struct `name`, or None for a scalar."""
    return types().get(name)


def _field(owner: str, name: str, text: str) -> Field:
    if text.startswith("[]"):
        return Field(owner, name, "list", text[2:])
    if text.startswith("{}"):
        return Field(owner, name, "map", text[2:])
    return Field(owner, name, "value", text)
