"""Builders, the kubelet that tests play, and how they look at watches."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from kubernetes.client.exceptions import ApiException

from tests.contract.backends import Cluster, wait_until

GPU = "nvidia.com/gpu"
Object = dict[str, Any]


def needs(cluster: Cluster, minor: int, what: str) -> None:
    """Skip on a real server that is older than 1.`minor`."""
    if cluster.version < (1, minor):
        have = ".".join(map(str, cluster.version))
        pytest.skip(f"{what} needs Kubernetes 1.{minor}, this control plane is {have}")


def container(gpus: int = 0, **more: Any) -> Object:
    built: Object = {"name": "main", "image": "registry.example/app:1", **more}
    if gpus:
        built["resources"] = {"limits": {GPU: str(gpus)}}
    return built


def pod_spec(*, gpus: int = 0, **more: Any) -> Object:
    """A spec that no kubelet of ours needs a token for."""
    return {"containers": [container(gpus)], "automountServiceAccountToken": False, **more}


def pod(name: str, *, gpus: int = 0, labels: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": pod_spec(gpus=gpus, **spec),
    }


def job(name: str, *, gpus: int = 0, pod_more: Object | None = None, **spec: Any) -> Object:
    template = {"spec": pod_spec(gpus=gpus, **{"restartPolicy": "Never", **(pod_more or {})})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def deployment(name: str, replicas: int = 1, *, gpus: int = 0, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(gpus=gpus)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
            **spec,
        },
    }


def config_map(name: str, data: Object | None = None, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data or {},
    }


@dataclass
class Space:
    """A namespace and the cluster-wide objects of one test."""

    cluster: Cluster
    name: str
    suffix: str
    _undo: list[Callable[[], Any]] = field(default_factory=list)

    def path(self, plural: str, name: str = "", *, group: str = "", sub: str = "") -> str:
        """The URL path of a resource in this namespace."""
        root = f"/apis/{group}/v1" if group else "/api/v1"
        parts = [root, "namespaces", self.name, plural, name, sub]
        return "/".join(part for part in parts if part)

    def node(self, name: str, *, gpus: int = 8, **metadata_and_spec: Any) -> str:
        """A ready node that only this test's pods (see `selector`) run on; its full name."""
        full = f"{name}-{self.suffix}"
        labels = {"space": self.suffix, **metadata_and_spec.pop("labels", {})}
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        if gpus:
            amounts[GPU] = str(gpus)
        body = {
            "metadata": {"name": full, "labels": labels},
            "spec": metadata_and_spec,
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [_READY]},
        }
        self.cluster.core.create_node(body)
        self._undo.append(lambda: self.cluster.core.delete_node(full))
        wanted = {taint["key"] for taint in metadata_and_spec.get("taints", ())}

        def settled() -> bool:  # the real node controller may taint it for a moment
            taints = self.cluster.core.read_node(full).spec.taints or ()
            return {taint.key for taint in taints} == wanted

        wait_until(settled, f"node {full} has only its own taints")
        return full

    @property
    def selector(self) -> Object:
        """A node selector for this test's nodes."""
        return {"space": self.suffix}

    def priority_class(self, name: str, value: int, **more: Any) -> str:
        full = f"{name}-{self.suffix}"
        body = {"metadata": {"name": full}, "value": value, **more}
        self.cluster.scheduling.create_priority_class(body)
        self._undo.append(lambda: self.cluster.scheduling.delete_priority_class(full))
        return full

    def pods(self, selector: str = "") -> list[Any]:
        found = self.cluster.core.list_namespaced_pod(self.name, label_selector=selector).items
        return sorted(found, key=lambda item: item.metadata.name)

    def create_pod(self, body: Object) -> Any:
        return self.cluster.core.create_namespaced_pod(self.name, body)

    def bound(self, name: str, seconds: float = 20) -> str:
        """The node that the scheduler gives the pod, once it does."""
        return wait_until(
            lambda: self.cluster.core.read_namespaced_pod(name, self.name).spec.node_name,
            f"pod {name} is scheduled",
            seconds,
        )

    def bind(self, name: str, node: str) -> None:
        """Bind a pod as a scheduler does."""
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        path = self.path("pods", name, sub="binding")
        self.cluster.http.post(path, json={**body, "apiVersion": "v1"}).raise_for_status()

    # the kubelet's part: what it reports of a pod

    def run(self, name: str) -> None:
        """Report a pod as running and ready."""
        ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        self._report(name, {"phase": "Running", "conditions": ready})

    def finish(self, name: str, phase: str = "Succeeded", code: int = 0) -> None:
        """Report a pod as Succeeded or Failed."""
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        status = {"name": "main", "state": {"terminated": ended}, "ready": False}
        status |= {"restartCount": 0, "image": "", "imageID": ""}
        self._report(name, {"phase": phase, "containerStatuses": [status]})

    def _report(self, name: str, status: Object) -> None:
        self.cluster.core.patch_namespaced_pod_status(name, self.name, {"status": status})

    def remove(self, name: str) -> None:
        """The pod's containers have stopped: let the object go."""
        with contextlib.suppress(ApiException):
            self.cluster.core.delete_namespaced_pod(name, self.name, grace_period_seconds=0)

    def gone(self, read: Callable[..., Any], *args: str, seconds: float = 20) -> None:
        """Wait until reading answers 404."""

        def absent() -> bool:
            try:
                read(*args)
            except ApiException as error:
                return error.status == 404
            return False

        wait_until(absent, f"{args} is gone", seconds)

    def close(self) -> None:
        with contextlib.suppress(ApiException):
            self.cluster.core.delete_collection_namespaced_pod(self.name, grace_period_seconds=0)
        for undo in reversed(self._undo):
            with contextlib.suppress(ApiException):
                undo()
        self.cluster.core.delete_namespace(self.name)


_READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "",
    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def open_space(cluster: Cluster) -> Space:
    """Make a namespace; on a real server also wait for its account, which pods need."""
    suffix = secrets.token_hex(4)
    name = f"contract-{suffix}"
    cluster.core.create_namespace({"metadata": {"name": name}})
    if cluster.real:
        wait_until(lambda: _has_account(cluster, name), f"{name} has its default account")
    return Space(cluster, name, suffix)


def _has_account(cluster: Cluster, namespace: str) -> bool:
    try:
        account = cluster.core.read_namespaced_service_account("default", namespace)
    except ApiException:
        return False
    return bool(account.secrets) or cluster.version >= (1, 24)


# -- watches ------------------------------------------------------------------------------------


@contextlib.contextmanager
def watching(cluster: Cluster, path: str, **query: Any) -> Iterator[Iterator[Object]]:
    """Open a watch; iterate its events as dicts until the server ends it."""
    params = {"watch": "true", "timeoutSeconds": 10, **query}
    with cluster.http.stream("GET", path, params=params) as response:
        assert response.status_code == 200, response.read()
        yield (json.loads(line) for line in response.iter_lines() if line)


def take(events: Iterator[Object], count: int) -> list[Object]:
    """The next `count` events."""
    return [next(events) for _ in range(count)]


def brief(events: list[Object]) -> list[tuple[str, str]]:
    """(type, name) of events."""
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def status_of(error: ApiException) -> Object:
    """The Status object of an error."""
    return json.loads(error.body)


def refused(response: httpx.Response) -> tuple[int, str]:
    """(code, reason) of a Status answer, its own code being the HTTP one."""
    body = response.json()
    assert body["kind"] == "Status"
    assert body["status"] == "Failure"
    assert body["code"] == response.status_code
    return body["code"], body["reason"]


def causes(status: Object) -> list[str]:
    """The fields that a 422 names."""
    return [cause["field"] for cause in status["details"]["causes"]]
