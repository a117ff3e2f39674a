"""The demo's access to the cluster: the official client, nothing else."""

from __future__ import annotations

import base64
import json
import logging
import threading
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from controlplane.sandbox.demo.manifests import (
    INFERENCE,
    RESEARCH,
    SERVING,
    SIMULATED_LABEL,
    TRAINING,
    Manifest,
)
from controlplane.sandbox.demo.reporter import Target
from controlplane.sandbox.demo.trainer import Member

logger = logging.getLogger("demo")
Unreachable = (ApiException, HTTPError, OSError)
_INDEX = "batch.kubernetes.io/job-completion-index"
_COST = "controller.kubernetes.io/pod-deletion-cost"
_TIMEOUT = 10.0


class Objects:
    """Creates, reads and changes the demo's objects. Raises the client's own errors
    (`Unreachable`). Used from one thread; reporters' threads only read Secrets."""

    def __init__(self, kubeconfig: Path) -> None:
        configuration = client.Configuration()
        config.load_kube_config(
            str(kubeconfig), client_configuration=configuration, persist_config=False
        )
        configuration.retries = False
        api = client.ApiClient(configuration)
        self.api = api
        self.core = client.CoreV1Api(api)
        self.batch = client.BatchV1Api(api)
        self.apps = client.AppsV1Api(api)
        self.scheduling = client.SchedulingV1Api(api)

    def ensure(self, manifest: Manifest) -> bool:
        """Create an object unless it is there; whether it was created."""
        kind, namespace = manifest["kind"], manifest["metadata"].get("namespace")
        create = {
            "Namespace": self.core.create_namespace,
            "PriorityClass": self.scheduling.create_priority_class,
            "ConfigMap": self.core.create_namespaced_config_map,
            "Deployment": self.apps.create_namespaced_deployment,
            "Job": self.batch.create_namespaced_job,
        }[kind]
        place = [namespace] if namespace else []
        try:
            create(*place, manifest, _request_timeout=_TIMEOUT)
        except ApiException as error:
            if error.status != 409:
                raise
            return False
        logger.info("created %s %s", kind, "/".join([*place, manifest["metadata"]["name"]]))
        return True

    # -- inference -----------------------------------------------------------------------------

    def inference_size(self) -> int | None:
        """Replicas that the inference Deployment asks for; None while there is none."""
        try:
            found = self.apps.read_namespaced_deployment_scale(
                INFERENCE, SERVING, _request_timeout=_TIMEOUT
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise
        return int(found.spec.replicas or 0)

    def scale_inference(self, replicas: int, leaving: int) -> None:
        """Scale; of those that leave, the pods that share a node with the fewest go first, as a
        serving autoscaler that gives whole nodes back would have it."""
        if leaving > 0:
            pods = self.core.list_namespaced_pod(
                SERVING, label_selector=f"app={INFERENCE}", _request_timeout=_TIMEOUT
            ).items
            for name in packing_victims(
                [
                    (pod.metadata.name, pod.spec.node_name or "")
                    for pod in pods
                    if not pod.metadata.deletion_timestamp
                ],
                leaving,
            ):
                body = {"metadata": {"annotations": {_COST: "-100"}}}
                self.core.patch_namespaced_pod(name, SERVING, body, _request_timeout=_TIMEOUT)
        self.apps.patch_namespaced_deployment_scale(
            INFERENCE, SERVING, {"spec": {"replicas": replicas}}, _request_timeout=_TIMEOUT
        )

    # -- jobs ----------------------------------------------------------------------------------

    def research_running(self) -> int:
        """How many research jobs there are."""
        found = self.batch.list_namespaced_job(RESEARCH, _request_timeout=_TIMEOUT)
        return len(found.items)

    def remove_finished(self, job: str) -> bool:
        """Delete a training job that has ended, so that it can be submitted again."""
        try:
            found = self.batch.read_namespaced_job(job, TRAINING, _request_timeout=_TIMEOUT)
        except ApiException as error:
            if error.status == 404:
                return False
            raise
        final = [c.type for c in found.status.conditions or () if c.status == "True"]
        if "Complete" not in final and "Failed" not in final:
            return False
        self.batch.delete_namespaced_job(
            job, TRAINING, propagation_policy="Foreground", _request_timeout=_TIMEOUT
        )
        logger.info("training job %s has ended (%s): it is submitted again", job, ", ".join(final))
        return True

    # -- trainers ------------------------------------------------------------------------------

    def target(self, job: str) -> Target | None:
        """Where a job reports to; None while Concertina hasn't written its Secret."""
        try:
            secret = self.core.read_namespaced_secret(
                f"{job}-concertina", TRAINING, _request_timeout=_TIMEOUT
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise OSError(f"reading the job's Secret: {error.status}") from error
        except HTTPError as error:
            raise OSError(f"reading the job's Secret: {error}") from error
        data = {key: base64.b64decode(text).decode() for key, text in (secret.data or {}).items()}
        names = ("CONCERTINA_URL", "CONCERTINA_TOKEN", "CONCERTINA_JOB")
        return Target(*(data[name] for name in names)) if data.keys() >= set(names) else None

    def job_uid(self, job: str) -> str:
        """The uid of a training job."""
        found = self.batch.read_namespaced_job(job, TRAINING, _request_timeout=_TIMEOUT)
        return str(found.metadata.uid)

    def load_progress(self, job: str) -> dict[str, Any] | None:
        """What a simulated trainer saved, its checkpoint so to speak."""
        try:
            found = self.core.read_namespaced_config_map(
                f"{job}-progress", TRAINING, _request_timeout=_TIMEOUT
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise
        return dict(json.loads((found.data or {}).get("progress", "{}"))) or None

    def save_progress(self, job: str, progress: dict[str, Any]) -> None:
        """Write it, creating the ConfigMap the first time."""
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{job}-progress", "namespace": TRAINING},
            "data": {"progress": json.dumps(progress)},
        }
        if not self.ensure(manifest):
            self.core.patch_namespaced_config_map(
                f"{job}-progress", TRAINING, {"data": manifest["data"]}, _request_timeout=_TIMEOUT
            )


def packing_victims(pods: list[tuple[str, str]], leaving: int) -> list[str]:
    """Which pods (name, node) leave so that whole nodes come free: those without a node, then
    those on the node with the fewest, one node after the other."""
    by_node: dict[str, list[str]] = {}
    for name, node in sorted(pods):
        by_node.setdefault(node, []).append(name)
    order = sorted(by_node, key=lambda node: (node != "", len(by_node[node]), node))
    return [name for node in order for name in by_node[node]][:leaving]


class PodWatch:
    """The pods of the simulated jobs, followed in a thread of its own."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._pods: dict[str, tuple[str, Member]] = {}  # uid -> job, member
        self._listed = threading.Event()
        self._stopping = threading.Event()

    def members(self, job: str) -> list[Member] | None:
        """The job's pods that haven't ended; None while nothing is known."""
        if not self._listed.is_set():
            return None
        with self._lock:
            return [member for owner, member in self._pods.values() if owner == job]

    def run(self) -> None:
        """List and watch until `stop`; what can't be reached is tried again."""
        while not self._stopping.is_set():
            try:
                self._follow()
            except Unreachable as error:
                self._listed.clear()
                status = getattr(error, "status", None)
                logger.info("watching pods: %s; listing again", status or error)
                self._stopping.wait(1.0)

    def stop(self) -> None:
        self._stopping.set()

    def _follow(self) -> None:
        core = self._objects.core
        listed = core.list_namespaced_pod(
            TRAINING, label_selector=SIMULATED_LABEL, _request_timeout=_TIMEOUT
        )
        with self._lock:
            self._pods.clear()
        for pod in listed.items:
            self._put(pod)
        self._listed.set()
        stream = watch.Watch().stream(
            core.list_namespaced_pod,
            TRAINING,
            label_selector=SIMULATED_LABEL,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=300,
            _request_timeout=(_TIMEOUT, 320),
        )
        for event in stream:
            if self._stopping.is_set():
                return
            self._put(event["object"], gone=event["type"] == "DELETED")

    def _put(self, pod: Any, *, gone: bool = False) -> None:
        uid = pod.metadata.uid
        with self._lock:
            if gone or pod.status.phase in ("Succeeded", "Failed"):
                self._pods.pop(uid, None)
                return
            conditions = pod.status.conditions or ()
            member = Member(
                index=int((pod.metadata.annotations or {}).get(_INDEX, 0)),
                pod=pod.metadata.name,
                ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
                leaving=pod.metadata.deletion_timestamp is not None,
            )
            self._pods[uid] = (pod.metadata.labels[SIMULATED_LABEL], member)
