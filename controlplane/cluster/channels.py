"""Which of the loop's three channels a change belongs to, or none.

Heartbeats, status counters and managed fields change all the time and mean nothing to a plan: two
versions of an object are compared by what a plan reads of them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from controlplane.cluster.interface import Manifest, Resource
from controlplane.cluster.resources import NODES, PODS, PRIORITY_CLASSES


class Channel(StrEnum):
    """What wakes the control loop (DESIGN.md, "The control loop")."""

    PODS = "pods"  # pod lifecycle events
    NODES = "nodes"  # node availability changes
    SCHEDULER = "scheduler"  # scheduler priority signals


def channel_of(resource: Resource, old: Manifest | None, new: Manifest | None) -> Channel | None:
    """The channel that a change from `old` to `new` wakes; None when a plan can't tell them apart.

    `old` is None for an object that appears, `new` for one that goes.
    """
    essence = _ESSENCE.get(resource, _workload)
    if old is not None and new is not None and essence(old) == essence(new):
        return None
    if resource == NODES:
        return Channel.NODES
    if resource == PODS:
        return Channel.SCHEDULER if new is not None and is_waiting(new) else Channel.PODS
    return Channel.SCHEDULER


def is_waiting(pod: Manifest) -> bool:
    """Whether a pod waits for the scheduler: unbound, not finished, not being deleted."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return (
        not spec.get("nodeName")
        and status.get("phase", "Pending") == "Pending"
        and not (pod.get("metadata") or {}).get("deletionTimestamp")
    )


def conditions(obj: Manifest) -> tuple[tuple[str, str], ...]:
    """(type, status) of an object's conditions, sorted; without times, reasons and messages."""
    found = (obj.get("status") or {}).get("conditions") or ()
    return tuple(sorted((str(c.get("type")), str(c.get("status"))) for c in found))


def _pod(pod: Manifest) -> tuple[Any, ...]:
    meta, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    return (
        meta.get("uid"),
        meta.get("deletionTimestamp"),
        meta.get("labels"),
        meta.get("ownerReferences"),
        spec.get("nodeName"),
        spec.get("priority"),
        status.get("phase"),
        status.get("nominatedNodeName"),
        dict(conditions(pod)).get("Ready"),
    )


def _node(node: Manifest) -> tuple[Any, ...]:
    meta, spec, status = (
        node.get("metadata") or {},
        node.get("spec") or {},
        node.get("status") or {},
    )
    return (
        meta.get("uid"),
        meta.get("labels"),
        meta.get("annotations"),
        spec.get("unschedulable"),
        spec.get("taints"),
        status.get("capacity"),
        status.get("allocatable"),
        conditions(node),
    )


def _workload(obj: Manifest) -> tuple[Any, ...]:
    """Spec, labels, annotations and conditions; not the counters of its status: pods tell those."""
    meta = obj.get("metadata") or {}
    return (
        meta.get("uid"),
        meta.get("labels"),
        meta.get("annotations"),
        meta.get("ownerReferences"),
        meta.get("deletionTimestamp"),
        obj.get("spec"),
        conditions(obj),
    )


def _priority_class(obj: Manifest) -> tuple[Any, ...]:
    return (obj.get("value"), obj.get("preemptionPolicy"), obj.get("globalDefault"))


_ESSENCE: dict[Resource, Callable[[Manifest], tuple[Any, ...]]] = {
    PODS: _pod,
    NODES: _node,
    PRIORITY_CLASSES: _priority_class,
}
