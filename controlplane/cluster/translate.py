"""Kubernetes objects -> the engine's snapshot. Pure: a view of the cache in, frozen values out.

What can't be known from the cluster alone (trainers' reports, commands in flight, history) is added
by the reconcile task from our own record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.cluster import names
from controlplane.cluster.cache import CacheView
from controlplane.cluster.channels import conditions
from controlplane.cluster.claims import claims_of, counted_once
from controlplane.cluster.interface import Manifest, metadata
from controlplane.cluster.kinds import KINDS, kind_named
from controlplane.cluster.kinds.base import (
    Malformed,
    PriorityTable,
    annotations_of,
    counted,
    key_of,
    labels_of,
)
from controlplane.cluster.neuron import in_devices
from controlplane.cluster.nodes import neuron_ratios, nodes_from
from controlplane.cluster.podspec import effective_requests, node_affinity, tolerations
from controlplane.cluster.resources import NODES, PODS, PRIORITY_CLASSES, REPLICASETS
from controlplane.cluster.times import unix
from controlplane.engine.snapshot import ClusterSnapshot, Pod, Workload
from controlplane.engine.types import PodPhase, PreemptionPolicy, WorkloadKey

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


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
    missing = dict(view.missing)
    pods = _pods(view, workloads, priorities, missing)
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


# -- pods --------------------------------------------------------------------------------------


def _pods(
    view: CacheView,
    workloads: Iterable[Workload],
    priorities: PriorityTable,
    missing: dict[str, str],
) -> list[Pod]:
    """Every pod that can be read; what it asks for counts each device once. Those that can't be
    are added to `missing`."""
    owners = _owners(view)
    by_key = {workload.key: workload for workload in workloads}
    found: list[Pod] = []
    claimants: dict[str, Manifest] = {}
    for obj in view.of(PODS):
        meta = metadata(obj)
        try:
            pod = pod_from(obj, owners, by_key, priorities)
        except ValueError as error:
            missing[f"pod {meta.get('namespace')}/{meta.get('name')}"] = str(error)
            continue
        found.append(pod)
        if pod.claims:
            claimants[pod.uid] = obj
    return in_devices(counted_once(found, claimants), neuron_ratios(view.of(NODES)))


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
        affinity=node_affinity(spec),
        claims=tuple(dict.fromkeys(claims_of(obj).values())),
        deletion_cost=_deletion_cost(obj),
        deletion_due=unix(meta["deletionTimestamp"]) if meta.get("deletionTimestamp") else None,
    )


def _deletion_cost(obj: Manifest) -> int:
    """0 for one that can't be read, as for the ReplicaSet controller (an int32, KEP-2255)."""
    text = annotations_of(obj).get(names.DELETION_COST, "")
    cost = int(text) if _INTEGER.fullmatch(text) else 0
    return cost if -(2**31) <= cost < 2**31 else 0


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
