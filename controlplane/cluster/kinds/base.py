"""What a workload kind tells the control plane. One file a kind; one explicit list of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from controlplane.cluster import names
from controlplane.cluster.interface import Manifest, PatchType, Resource, metadata
from controlplane.cluster.kinds.annotations import (
    Malformed,
    annotated_int,
    annotations_of,
    hints_of,
    queue_of,
    topology_of,
    weight_of,
)
from controlplane.cluster.neuron import one_name
from controlplane.cluster.podspec import effective_requests, node_affinity, tolerations
from controlplane.cluster.times import unix
from controlplane.engine.snapshot import ReplicaShape, Workload
from controlplane.engine.types import WorkloadKey

__all__ = [
    "ElasticKind",
    "Malformed",
    "PriorityTable",
    "Stamp",
    "WorkloadKind",
    "Write",
    "annotated_int",
    "annotations_of",
    "command_of",
    "common_fields",
    "counted",
    "epoch_of",
    "is_finished",
    "is_managed",
    "key_of",
    "labels_of",
    "shape_of",
    "template_spec",
]


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who writes: the fencing epoch of the leader and the id of the command."""

    epoch: int
    command: str


@dataclass(frozen=True, slots=True)
class Write:
    """One patch to send. Its body carries the resourceVersion that it was decided on."""

    resource: Resource
    namespace: str
    name: str
    body: Manifest
    patch_type: PatchType = PatchType.MERGE


@dataclass(frozen=True, slots=True)
class PriorityTable:
    """Values of the cluster's priority classes. `default` is the global default's name, or ""."""

    values: Mapping[str, int]
    preemption: Mapping[str, str]
    default: str = ""

    def of(self, pod_spec: Mapping[str, Any]) -> tuple[int, str]:
        """(value, class name) of a pod spec, by Kubernetes' admission rule; (0, "") without one."""
        name = str(pod_spec.get("priorityClassName") or "")
        value = pod_spec.get("priority")
        if value is not None:
            return int(value), name
        name = name or self.default
        return self.values.get(name, 0), name


class WorkloadKind(Protocol):
    """One kind of workload. All methods are pure: they read manifests and build patches."""

    @property
    def resource(self) -> Resource: ...

    def discover(self, manifest: Manifest) -> bool:
        """Whether this object belongs in the snapshot."""
        ...

    def shape(self, manifest: Manifest) -> ReplicaShape:
        """What one replica is. Raises Malformed."""
        ...

    def observe(self, manifest: Manifest, priorities: PriorityTable) -> Workload:
        """The workload as the engine sees it. Raises Malformed."""
        ...

    def replica_index(self, pod: Manifest, shape: ReplicaShape) -> int | None:
        """Which replica a pod belongs to; None when the kind has no stable indexes."""
        ...


@runtime_checkable
class ElasticKind(WorkloadKind, Protocol):
    """A kind whose replica count can change while it runs."""

    def resize(
        self, manifest: Manifest, to: int, victims: tuple[str, ...], stamp: Stamp
    ) -> tuple[Write, ...]:
        """Patches that make it `to` replicas, leaving by `victims` where the kind can choose.

        0 stops the workload so that it can be started again (suspend), never completes it.
        """
        ...

    def admit(self, manifest: Manifest, to: int, stamp: Stamp) -> tuple[Write, ...]:
        """Patches that start a suspended workload with `to` replicas."""
        ...


def key_of(manifest: Manifest) -> WorkloadKey:
    meta = metadata(manifest)
    return WorkloadKey(
        str(manifest.get("kind")), str(meta.get("namespace") or ""), str(meta.get("name"))
    )


def is_managed(manifest: Manifest) -> bool:
    return labels_of(manifest).get(names.MANAGED) == "true"


def labels_of(manifest: Manifest) -> Mapping[str, str]:
    return metadata(manifest).get("labels") or {}


def epoch_of(manifest: Manifest) -> int:
    """The epoch of our last write on it; 0 for none. Raises Malformed if somebody damaged it."""
    return annotated_int(manifest, names.EPOCH, 0, least=0)


def command_of(manifest: Manifest) -> str:
    """The id of the last command applied to it; "" for none."""
    return annotations_of(manifest).get(names.COMMAND, "")


def shape_of(manifest: Manifest, pods_per_replica: int) -> ReplicaShape:
    """A replica of pods that are all made from `spec.template`."""
    spec = template_spec(manifest)
    try:
        requests = effective_requests(spec)
    except ValueError as error:
        raise Malformed("spec.template resources", str(error), "Correct the quantity.") from error
    template_notes = _template_meta(manifest).get("annotations") or {}
    level, required = topology_of(annotations_of(manifest), template_notes)
    return ReplicaShape(
        pods_per_replica=pods_per_replica,
        requests=counted(requests),
        tolerations=tolerations(spec),
        node_selector=dict(spec.get("nodeSelector") or {}),
        affinity=node_affinity(spec),
        topology=level,
        topology_required=required,
    )


def template_spec(manifest: Manifest) -> Mapping[str, Any]:
    template = (manifest.get("spec") or {}).get("template") or {}
    spec: Mapping[str, Any] = template.get("spec") or {}
    return spec


def _template_meta(manifest: Manifest) -> Mapping[str, Any]:
    return metadata((manifest.get("spec") or {}).get("template") or {})


def counted(requests: Mapping[str, int]) -> dict[str, int]:
    """The resources that the engine counts: accelerators (each under one name), cpu, memory."""
    found = {
        name: n
        for name, n in requests.items()
        if n > 0 and (name in ("cpu", "memory") or names.is_accelerator(name))
    }
    return one_name(found)


def common_fields(manifest: Manifest, priorities: PriorityTable) -> dict[str, Any]:
    """The fields of Workload that every kind reads in the same way."""
    meta = metadata(manifest)
    labels, notes = labels_of(manifest), annotations_of(manifest)
    template_labels = _template_meta(manifest).get("labels") or {}
    team = labels.get(names.TEAM) or template_labels.get(names.TEAM)
    priority, priority_class = priorities.of(template_spec(manifest))
    return {
        "key": key_of(manifest),
        "uid": str(meta.get("uid") or ""),
        "resource_version": str(meta.get("resourceVersion") or ""),
        "generation": int(meta.get("generation") or 0),
        "created_at": unix(meta.get("creationTimestamp")),
        "managed": is_managed(manifest),
        "policy": notes.get(names.POLICY) or None,
        "priority": priority,
        "priority_class": priority_class,
        "team": team or str(meta.get("namespace") or ""),
        "queue": queue_of(notes),
        "epoch": epoch_of(manifest),
        "weight": weight_of(notes),
        "hints": hints_of(notes),
    }


def is_finished(manifest: Manifest, types: tuple[str, ...]) -> bool:
    """Whether one of these condition types is True."""
    found = (manifest.get("status") or {}).get("conditions") or ()
    return any(c.get("type") in types and c.get("status") == "True" for c in found)
