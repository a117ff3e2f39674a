"""Kubernetes nodes -> the engine's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.cluster import names
from controlplane.cluster.channels import conditions
from controlplane.cluster.departures import departure_of
from controlplane.cluster.interface import Manifest, metadata
from controlplane.cluster.kinds.base import counted, labels_of
from controlplane.cluster.neuron import cores_per_device
from controlplane.cluster.quantities import units
from controlplane.cluster.times import unix
from controlplane.engine.snapshot import Node
from controlplane.engine.types import Taint


def nodes_from(manifests: Iterable[Manifest]) -> tuple[Node, ...]:
    """All nodes by name; what a pool's other nodes have is what a booting one will have."""
    found = tuple(manifests)
    promised = _pool_promises(found)
    return tuple(sorted((_node(obj, promised) for obj in found), key=lambda node: node.name))


def pool_of(labels: Mapping[str, str]) -> str:
    """The node's pool: the first pool label that it carries, else `default`."""
    return next(
        (labels[name] for name in names.POOL_LABELS if labels.get(name)), names.DEFAULT_POOL
    )


def neuron_ratios(manifests: Iterable[Manifest]) -> dict[str, int]:
    """Cores of a Neuron device, of each node that advertises both."""
    found = {}
    for obj in manifests:
        if names.NEURON_CORE in ((obj.get("status") or {}).get("capacity") or {}):
            ratio = cores_per_device(_amounts(obj, "capacity"))
            if ratio is not None:
                found[str(metadata(obj).get("name"))] = ratio
    return found


def _node(obj: Manifest, promised: Mapping[str, Mapping[str, int]]) -> Node:
    meta, spec = metadata(obj), obj.get("spec") or {}
    labels = labels_of(obj)
    pool = pool_of(labels)
    capacity, allocatable = _amounts(obj, "capacity"), _amounts(obj, "allocatable")
    if names.NEURON in capacity:
        allocatable.pop(names.NEURON_CORE, None)
    capacity = _each_once(capacity)
    ready = dict(conditions(obj)).get("Ready") == "True"
    expects = _label_promises(labels)
    named = {names.vendor(name) for name in (*expects, *capacity)}
    for name, n in promised.get(pool, {}).items():
        if names.vendor(name) not in named:
            expects[name] = n
    offered = {names.vendor(name) for name in capacity}
    return Node(
        name=str(meta.get("name")),
        uid=str(meta.get("uid") or ""),
        pool=pool,
        labels=dict(labels),
        taints=tuple(
            Taint(str(t.get("key")), str(t.get("value") or ""), str(t.get("effect")))
            for t in spec.get("taints") or ()
        ),
        ready=ready,
        unschedulable=bool(spec.get("unschedulable")),
        capacity=capacity,
        allocatable=allocatable,
        # a vendor's device plugin is up once it offers anything: what it doesn't offer then, like
        # a whole device that is cut into slices or shared, won't come
        expects={name: n for name, n in expects.items() if names.vendor(name) not in offered},
        unhealthy={
            name: n - allocatable.get(name, 0)
            for name, n in capacity.items()
            if names.is_accelerator(name) and n > allocatable.get(name, 0)
        },
        departure=departure_of(obj),
        not_ready_since=None if ready else _not_ready_since(obj),
    )


def _not_ready_since(obj: Manifest) -> float:
    """When the Ready condition changed; else since when a taint says so (the node controller's, or
    the kubelet's silence); else when the node came."""
    found: list[Mapping[str, Any]] = (obj.get("status") or {}).get("conditions") or []
    changed = [c.get("lastTransitionTime") for c in found if c.get("type") == "Ready"]
    tainted = [
        taint.get("timeAdded")
        for taint in (obj.get("spec") or {}).get("taints") or ()
        if taint.get("key") in (names.NOT_READY, names.UNREACHABLE)
    ]
    times = (unix(text) for text in (*changed, *tainted, metadata(obj).get("creationTimestamp")))
    return next((at for at in times if at), 0.0)


def _amounts(obj: Manifest, field: str) -> dict[str, int]:
    found = (obj.get("status") or {}).get(field) or {}
    return counted({name: units(name, str(value)) for name, value in found.items()})


def _label_promises(labels: Mapping[str, str]) -> dict[str, int]:
    """Accelerators that the node's labels promise. Where devices are cut by the mixed strategy,
    only the slices: how many stay whole isn't told (KAI 422)."""
    found: dict[str, int] = {}
    for label, text in labels.items():
        if label.startswith(names.MIG_PREFIX) and label.endswith(".count") and _number(text):
            found[label.removesuffix(".count")] = int(text)
    sliced = labels.get(names.MIG_STRATEGY) == "mixed" and bool(found)
    for promise in names.EXPECTED_LABELS:
        if sliced and promise.resource == names.GPU:
            continue
        given = labels.get(promise.given) if promise.given else promise.value
        text = labels.get(promise.label, "")
        if given is not None and promise.value in ("", given) and _number(text):
            found.setdefault(promise.resource, int(text))
    return found


def _number(text: str) -> bool:
    return text.isdecimal() and len(text) <= 6 and int(text) > 0


def _pool_promises(nodes: Iterable[Manifest]) -> dict[str, dict[str, int]]:
    """By named pool, what its nodes have most often of each vendor: pools are made of equal
    machines, but those may be cut in different ways."""
    seen: dict[str, dict[str, Counter[tuple[tuple[str, int], ...]]]] = {}
    for obj in nodes:
        pool = pool_of(labels_of(obj))
        if pool == names.DEFAULT_POOL:
            continue
        there = sorted(_each_once(_amounts(obj, "capacity")).items())
        found = [item for item in there if names.is_accelerator(item[0])]
        for of in {names.vendor(name) for name, _ in found}:
            have = tuple(item for item in found if names.vendor(item[0]) == of)
            seen.setdefault(pool, {}).setdefault(of, Counter())[have] += 1
    return {
        pool: {name: n for counts in vendors.values() for name, n in _commonest(counts)}
        for pool, vendors in seen.items()
    }


def _commonest(counts: Counter[tuple[tuple[str, int], ...]]) -> tuple[tuple[str, int], ...]:
    return max(counts, key=lambda have: (counts[have], have))


def _each_once(amounts: Mapping[str, int]) -> dict[str, int]:
    """Without the cores of devices that are counted too."""
    cores = names.NEURON_CORE if names.NEURON in amounts else None
    return {name: n for name, n in amounts.items() if name != cores}
