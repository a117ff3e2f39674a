"""Builders of Kubernetes objects as a client reads them; every argument has a default."""

from __future__ import annotations

import itertools
from typing import Any

_serial = itertools.count(1)

Manifest = dict[str, Any]
CREATED = "2026-12-01T00:00:00Z"


def make_meta(name: str, namespace: str | None = None, **extra: Any) -> Manifest:
    number = next(_serial)
    meta: Manifest = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(number),
        "creationTimestamp": CREATED,
    }
    if namespace is not None:
        meta["namespace"] = namespace
    meta.update({key: value for key, value in extra.items() if value is not None})
    return meta


def make_owner(kind: str, name: str, *, api: str = "batch/v1", uid: str = "") -> list[Manifest]:
    return [
        {
            "apiVersion": api,
            "kind": kind,
            "name": name,
            "uid": uid or f"uid-{name}",
            "controller": True,
        }
    ]


def make_node_object(
    name: str = "main-00",
    *,
    gpus: int | None = 8,
    resource: str = "nvidia.com/gpu",
    ready: bool = True,
    labels: dict[str, str] | None = None,
    taints: list[Manifest] | None = None,
    unschedulable: bool = False,
    allocatable: int | None = None,
    **meta: Any,
) -> Manifest:
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    able = dict(capacity)
    if gpus is not None:
        capacity[resource] = str(gpus)
        able[resource] = str(gpus if allocatable is None else allocatable)
    spec: Manifest = {}
    if taints:
        spec["taints"] = taints
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": make_meta(name, labels=labels or {"concertina.dev/pool": "main"}, **meta),
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": able,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def make_container(
    gpus: int | None = 8, *, resource: str = "nvidia.com/gpu", **requests: str
) -> Manifest:
    limits = {resource: str(gpus)} if gpus is not None else {}
    container: Manifest = {"name": "main", "image": "train"}
    container["resources"] = {"limits": limits, "requests": {**requests, **limits}}
    return container


def make_pod_spec(gpus: int | None = 8, **extra: Any) -> Manifest:
    return {"containers": [make_container(gpus)], **extra}


def make_pod_object(
    name: str = "llama-0",
    namespace: str = "ml",
    *,
    node: str | None = None,
    phase: str = "",
    ready: bool | None = None,
    gpus: int | None = 8,
    spec: Manifest | None = None,
    priority: int = 0,
    index: int | None = None,
    nominated: str | None = None,
    owners: list[Manifest] | None = None,
    deleting: bool = False,
    **meta: Any,
) -> Manifest:
    phase = phase or ("Running" if node else "Pending")
    ready = (phase == "Running") if ready is None else ready
    annotations = dict(meta.pop("annotations", None) or {})
    if index is not None:
        annotations["batch.kubernetes.io/job-completion-index"] = str(index)
    body = {"priority": priority, **(spec if spec is not None else make_pod_spec(gpus))}
    if node:
        body["nodeName"] = node
    status: Manifest = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    if nominated:
        status["nominatedNodeName"] = nominated
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": make_meta(
            name,
            namespace,
            annotations=annotations,
            ownerReferences=owners,
            deletionTimestamp="2026-12-01T00:01:00Z" if deleting else None,
            **meta,
        ),
        "spec": body,
        "status": status,
    }


def make_job_object(
    name: str = "llama",
    namespace: str = "ml",
    *,
    parallelism: int = 4,
    completions: int | None = None,
    policy: str | None = "steady",
    managed: bool = True,
    gpus: int = 8,
    mode: str = "Indexed",
    suspend: bool = False,
    priority_class: str | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    finished: str | None = None,
    pod_spec: Manifest | None = None,
    **meta: Any,
) -> Manifest:
    notes = dict(annotations or {})
    if policy is not None:
        notes.setdefault("concertina.dev/elasticity-policy", policy)
    marks = dict(labels or {})
    if managed:
        marks["concertina.dev/managed"] = "true"
    template = {"restartPolicy": "Never", **(pod_spec or make_pod_spec(gpus))}
    if priority_class:
        template = {**template, "priorityClassName": priority_class}
    status: Manifest = {}
    if finished:
        status["conditions"] = [{"type": finished, "status": "True"}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": make_meta(
            name, namespace, labels=marks, annotations=notes, generation=1, **meta
        ),
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism if completions is None else completions,
            "completionMode": mode,
            "suspend": suspend,
            "template": {"metadata": {"labels": {"app": name}}, "spec": template},
        },
        "status": status,
    }


def make_deployment_object(
    name: str = "chat",
    namespace: str = "serving",
    *,
    replicas: int = 2,
    gpus: int = 8,
    priority_class: str | None = None,
    labels: dict[str, str] | None = None,
    **meta: Any,
) -> Manifest:
    template = make_pod_spec(gpus)
    if priority_class:
        template["priorityClassName"] = priority_class
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": make_meta(name, namespace, labels=labels or {}, generation=1, **meta),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template},
        },
        "status": {},
    }


def make_replicaset_object(name: str, namespace: str = "serving", *, deployment: str) -> Manifest:
    owners = make_owner("Deployment", deployment, api="apps/v1")
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": make_meta(name, namespace, ownerReferences=owners),
        "spec": {"replicas": 1},
        "status": {},
    }


def make_priority_class_object(
    name: str, value: int, *, preemption: str = "Never", **extra: Any
) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": make_meta(name),
        "value": value,
        "preemptionPolicy": preemption,
        **extra,
    }
