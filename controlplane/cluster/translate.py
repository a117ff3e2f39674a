"""Kubernetes objects -> the engine's snapshot. Pure: a view of the cache in, frozen values out.

What can't be known from the cluster alone (trainers' reports, commands in flight, history) is added
by the reconcile task from our own record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.cluster import names
from controlplane.cluster.cache import CacheView
from controlplane.cluster.channels import conditions
from controlplane.cluster.interface import Manifest, metadata
from controlplane.cluster.kinds import KINDS, kind_named
from controlplane.cluster.kinds.base import (
    Malformed,
    PriorityTable,
    counted,
    key_of,
    labels_of,
)
from controlplane.cluster.podspec import effective_requests, tolerations
from controlplane.cluster.quantities import units
from controlplane.cluster.resources import NODES, PODS, PRIORITY_CLASSES, REPLICASETS
from controlplane.cluster.times import unix
from controlplane.engine.snapshot import ClusterSnapshot, Node, Pod, Workload
from controlplane.engine.types import PodPhase, PreemptionPolicy, Taint, WorkloadKey


@dataclass(frozen=True, slots=True)
class PriorityClassSeen:
    """A PriorityClass object of the cluster."""

    name: str
    value: int
    preemption_policy: str
    description: str
    default: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """Something on the cluster that can't be read. `workload` is left alone until it is mended."""

    workload: WorkloadKey
    uid: str
    field: str
    value: str
    message: str


@dataclass(frozen=True, slots=True)
class Translation:
    """A snapshot, what it couldn't read, and why it isn't complete (by source)."""

    snapshot: ClusterSnapshot
    problems: tuple[Problem, ...]
    priority_classes: tuple[PriorityClassSeen, ...]
    missing: Mapping[str, str]


def translate(view: CacheView, cluster: str) -> Translation:
    """The snapshot of one cluster as its cache holds it.

    A malformed workload is left out and reported; its pods still hold what they hold. A pod whose
    requests can't be read makes the snapshot incomplete: what it holds is unknown, not 0.
    """
    classes = tuple(_priority_class(obj) for obj in view.of(PRIORITY_CLASSES))
    priorities = priority_table(classes)
    workloads, problems = _workloads(view, priorities)
    owners = _owners(view)
    shapes = {workload.key: workload for workload in workloads}
    missing = dict(view.missing)
    pods: list[Pod] = []
    for obj in view.of(PODS):
        try:
            pods.append(pod_from(obj, owners, shapes, priorities))
        except ValueError as error:
            missing[f"pod {metadata(obj).get('namespace')}/{metadata(obj).get('name')}"] = str(
                error
            )
    snapshot = ClusterSnapshot(
        cluster=cluster,
        taken_at=view.taken_at,
        complete=view.complete and not missing,
        nodes=nodes_from(view.of(NODES)),
        pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))),
        workloads=tuple(sorted(workloads, key=lambda workload: str(workload.key))),
        reports={},
        in_flight=(),
        history={},
    )
    return Translation(snapshot, tuple(problems), classes, missing)


def priority_table(classes: Iterable[PriorityClassSeen]) -> PriorityTable:
    found = tuple(classes)
    default = next((c.name for c in found if c.default), "")
    return PriorityTable(
        values={c.name: c.value for c in found},
        preemption={c.name: c.preemption_policy for c in found},
        default=default,
    )


def _priority_class(obj: Manifest) -> PriorityClassSeen:
    return PriorityClassSeen(
        name=str(metadata(obj).get("name")),
        value=int(obj.get("value") or 0),
        preemption_policy=str(obj.get("preemptionPolicy") or "PreemptLowerPriority"),
        description=str(obj.get("description") or ""),
        default=bool(obj.get("globalDefault")),
    )


# -- workloads ---------------------------------------------------------------------------------


def _workloads(view: CacheView, priorities: PriorityTable) -> tuple[list[Workload], list[Problem]]:
    found: list[Workload] = []
    problems: list[Problem] = []
    for kind in KINDS:
        for manifest in view.of(kind.resource):
            if not kind.discover(manifest):
                continue
            try:
                found.append(kind.observe(manifest, priorities))
            except Malformed as error:
                problems.append(_problem(manifest, error))
    return found, problems


def _problem(manifest: Manifest, error: Malformed) -> Problem:
    return Problem(
        workload=key_of(manifest),
        uid=str(metadata(manifest).get("uid") or ""),
        field=error.field,
        value=str(error.value),
        message=str(error),
    )


# -- nodes -------------------------------------------------------------------------------------


def nodes_from(manifests: Iterable[Manifest]) -> tuple[Node, ...]:
    """All nodes by name; what a pool's other nodes have is what a booting one will have."""
    found = tuple(manifests)
    promised = _pool_promises(found)
    return tuple(sorted((_node(obj, promised) for obj in found), key=lambda node: node.name))


def _node(obj: Manifest, promised: Mapping[str, Mapping[str, int]]) -> Node:
    meta, spec = metadata(obj), obj.get("spec") or {}
    labels = labels_of(obj)
    pool = pool_of(labels)
    capacity, allocatable = _amounts(obj, "capacity"), _amounts(obj, "allocatable")
    expects = {**promised.get(pool, {}), **_label_promises(labels)}
    return Node(
        name=str(meta.get("name")),
        uid=str(meta.get("uid") or ""),
        pool=pool,
        labels=dict(labels),
        taints=tuple(
            Taint(str(t.get("key")), str(t.get("value") or ""), str(t.get("effect")))
            for t in spec.get("taints") or ()
        ),
        ready=dict(conditions(obj)).get("Ready") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        capacity=capacity,
        allocatable=allocatable,
        expects={name: n for name, n in expects.items() if not capacity.get(name)},
        unhealthy={
            name: n - allocatable.get(name, 0)
            for name, n in capacity.items()
            if name in names.ACCELERATORS and n > allocatable.get(name, 0)
        },
    )


def pool_of(labels: Mapping[str, str]) -> str:
    """The node's pool: the first pool label that it carries, else `default`."""
    return next(
        (labels[name] for name in names.POOL_LABELS if labels.get(name)), names.DEFAULT_POOL
    )


def _amounts(obj: Manifest, field: str) -> dict[str, int]:
    found = (obj.get("status") or {}).get(field) or {}
    return counted({name: units(name, str(value)) for name, value in found.items()})


def _label_promises(labels: Mapping[str, str]) -> dict[str, int]:
    return {
        resource: int(labels[label])
        for label, resource in names.EXPECTED_LABELS
        if labels.get(label, "").isdecimal()
    }


def _pool_promises(nodes: Iterable[Manifest]) -> dict[str, dict[str, int]]:
    """By named pool, the commonest accelerators of its nodes: pools are made of equal machines."""
    seen: dict[str, dict[str, Counter[int]]] = {}
    for obj in nodes:
        pool = pool_of(labels_of(obj))
        for name, n in _amounts(obj, "capacity").items():
            if name in names.ACCELERATORS and pool != names.DEFAULT_POOL:
                seen.setdefault(pool, {}).setdefault(name, Counter())[n] += 1
    return {
        pool: {name: counts.most_common(1)[0][0] for name, counts in resources.items()}
        for pool, resources in seen.items()
    }


# -- pods --------------------------------------------------------------------------------------


def pod_from(
    obj: Manifest,
    owners: Mapping[str, WorkloadKey],
    workloads: Mapping[WorkloadKey, Workload],
    priorities: PriorityTable,
) -> Pod:
    """One pod. Raises ValueError when its requests can't be read."""
    meta, spec, status = metadata(obj), obj.get("spec") or {}, obj.get("status") or {}
    namespace = str(meta.get("namespace") or "")
    owner = _controller(meta, namespace, owners)
    priority, priority_class = priorities.of(spec)
    return Pod(
        uid=str(meta.get("uid") or ""),
        namespace=namespace,
        name=str(meta.get("name")),
        node=spec.get("nodeName") or None,
        nominated_node=status.get("nominatedNodeName") or None,
        phase=PodPhase(str(status.get("phase") or "Pending")),
        deleting=bool(meta.get("deletionTimestamp")),
        ready=dict(conditions(obj)).get("Ready") == "True",
        requests=counted(effective_requests(spec)),
        priority=priority,
        priority_class=priority_class,
        preemption_policy=_preemption(spec, priority_class, priorities),
        workload=owner,
        replica_index=_replica_index(obj, owner, workloads),
        tolerations=tolerations(spec),
        node_selector=dict(spec.get("nodeSelector") or {}),
        created_at=unix(meta.get("creationTimestamp")),
        labels=dict(labels_of(obj)),
    )


def _preemption(
    spec: Mapping[str, object], priority_class: str, priorities: PriorityTable
) -> PreemptionPolicy:
    text = spec.get("preemptionPolicy") or priorities.preemption.get(priority_class)
    return PreemptionPolicy(str(text or "PreemptLowerPriority"))


def _replica_index(
    obj: Manifest, owner: WorkloadKey | None, workloads: Mapping[WorkloadKey, Workload]
) -> int | None:
    workload = workloads.get(owner) if owner is not None else None
    kind = kind_named(owner.kind) if owner is not None else None
    if workload is None or kind is None:
        return None
    return kind.replica_index(obj, workload.shape)


def _owners(view: CacheView) -> dict[str, WorkloadKey]:
    """By uid of an object that owns pods, the workload at the top: ReplicaSet -> its Deployment."""
    tops: dict[str, WorkloadKey] = {}
    for kind in KINDS:
        for obj in view.of(kind.resource):
            tops[str(metadata(obj).get("uid"))] = key_of(obj)
    for obj in view.of(REPLICASETS):
        meta = metadata(obj)
        namespace = str(meta.get("namespace") or "")
        tops[str(meta.get("uid"))] = _controller(meta, namespace, tops) or key_of(obj)
    return tops


def _controller(
    meta: Mapping[str, object], namespace: str, tops: Mapping[str, WorkloadKey]
) -> WorkloadKey | None:
    """The workload behind an object's controller reference; None for one that stands alone."""
    references = meta.get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if reference.get("controller"):
            named = WorkloadKey(str(reference["kind"]), namespace, str(reference["name"]))
            return tops.get(str(reference.get("uid")), named)
    return None


def pods_of(snapshot: ClusterSnapshot, key: WorkloadKey) -> tuple[Pod, ...]:
    """The pods of one workload."""
    return tuple(pod for pod in snapshot.pods if pod.workload == key)
