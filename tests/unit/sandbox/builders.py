"""A sandbox cluster in virtual time: builders of objects and of the whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from controlplane.sandbox import namespaces, scheduler
from controlplane.sandbox.clock import ManualClock
from controlplane.sandbox.controllers import deployment, garbage, job, nodes, replicaset
from controlplane.sandbox.emulator import Settings, fleet, kubelet
from controlplane.sandbox.kinds import JOB, POD, KindInfo
from controlplane.sandbox.objects import clone, meta, name_of
from controlplane.sandbox.store import Store

GPU = "nvidia.com/gpu"
Object = dict[str, Any]


class SandboxCluster:
    """All components on one store, with a clock that the test moves."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock

    async def settle(self) -> None:
        """Let the components work until nothing changes any more (no time passes)."""
        quiet = 0
        while quiet < 5:
            before = self.store.resource_version
            await self.clock.settle()
            quiet = quiet + 1 if self.store.resource_version == before else 0

    async def advance(self, seconds: float, step: float = 0.25) -> None:
        """Let time pass, settling every `step` seconds."""
        passed = 0.0
        await self.settle()
        while passed < seconds:
            part = min(step, seconds - passed)
            await self.clock.advance(part)
            await self.settle()
            passed += part

    # -- objects -------------------------------------------------------------------------------

    def create(self, kind: KindInfo, obj: Object) -> Object:
        return self.store.create(kind, obj)

    def get(self, kind: KindInfo, name: str, namespace: str = "default") -> Object:
        return self.store.get(kind, namespace, name)

    def change(
        self, kind: KindInfo, name: str, edit: Callable[[Object], Any], *, status: bool = False
    ) -> Object:
        """Read, edit a copy, write back."""
        new = clone(self.store.get(kind, "default", name))
        edit(new)
        return self.store.update(kind, new, subresource="status" if status else None)

    def resize(self, name: str, size: int) -> None:
        """An elastic resize: parallelism and completions together (KEP-3715)."""
        self.change(JOB, name, lambda j: j["spec"].update(parallelism=size, completions=size))

    def pods(self, owner: str = "") -> list[Object]:
        """The pods whose name begins with `owner`, by name."""
        return [pod for pod in self.store.list(POD) if name_of(pod).startswith(owner)]

    def indexes(self, owner: str) -> list[int]:
        """Completion indexes of the active pods of an Indexed Job."""
        key = "batch.kubernetes.io/job-completion-index"
        return sorted(
            int(meta(pod)["annotations"][key])
            for pod in self.pods(owner)
            if not meta(pod).get("deletionTimestamp")
            and pod["status"]["phase"] in ("Pending", "Running")
        )

    def pod_of_index(self, owner: str, index: int) -> Object:
        """The newest pod with this completion index."""
        found = [p for p in self.pods(owner) if name_of(p).startswith(f"{owner}-{index}-")]
        return max(found, key=lambda pod: int(meta(pod)["resourceVersion"]))

    def end(self, pod: Object, code: int = 0) -> None:
        """The pod's containers end with this exit code, now."""
        assert pod["status"]["phase"] == "Running", pod["status"]
        run = kubelet_of(self.store)
        run.emulated.kill(meta(pod)["uid"], code)
        run._due((meta(pod)["namespace"], name_of(pod)))

    def nodes_of(self, pods: list[Object]) -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in pods]

    def job_status(self, name: str) -> dict[str, Any]:
        """The counts of a job, 0 where absent, with its final condition."""
        status = self.get(JOB, name).get("status") or {}
        found = {key: status.get(key, 0) for key in ("active", "ready", "succeeded", "failed")}
        final = [
            c["type"]
            for c in status.get("conditions") or ()
            if c["type"] in ("Complete", "Failed") and c["status"] == "True"
        ]
        return {**found, "terminating": status.get("terminating", 0), "final": "".join(final)}


def kubelet_of(store: Store) -> Any:
    """The pod agent that registered itself with the store."""
    assert store.hooks.send_signal is not None
    return store.hooks.send_signal.__self__  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def running_cluster(
    folder: Path, nodes_text: str = "main=4x8", *, store: Store | None = None, boot: bool = True
) -> AsyncIterator[SandboxCluster]:
    """A cluster with its components running; nodes and devices are up when it is handed over."""
    clock = ManualClock() if store is None else store.clock
    assert isinstance(clock, ManualClock)
    store = store or Store(clock=clock)
    fleet.populate(store, fleet.parse(nodes_text))
    settings = Settings(folder=folder, boot=1.0, stop=1.0)
    parts = [
        namespaces.run(store, clock),
        garbage.run(store, clock),
        nodes.run(store, clock),
        job.run(store, clock),
        deployment.run(store, clock),
        replicaset.run(store, clock),
        scheduler.run(store, clock),
        kubelet.run(store, clock, settings),
    ]
    tasks = [asyncio.create_task(part) for part in parts]
    cluster = SandboxCluster(store, clock)
    try:
        if boot:
            await cluster.advance(4.0)
        yield cluster
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def make_container(gpus: int = 0, **more: Any) -> Object:
    container: Object = {"name": "main", "image": "app:1", **more}
    if gpus:
        container["resources"] = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    return container


def make_pod(name: str, gpus: int = 0, *, annotations: Object | None = None, **spec: Any) -> Object:
    containers = spec.pop("containers", None) or [make_container(gpus)]
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"containers": containers, **spec},
    }


def make_job(
    name: str = "llama",
    size: int = 3,
    *,
    gpus: int = 0,
    annotations: Object | None = None,
    pod: Object | None = None,
    **spec: Any,
) -> Object:
    """An elastic Indexed Job of `size` pods; `spec` and `pod` override parts."""
    template: Object = {
        "metadata": {"annotations": annotations or {}},
        "spec": {"restartPolicy": "Never", "containers": [make_container(gpus)], **(pod or {})},
    }
    body = {"completionMode": "Indexed", "parallelism": size, "completions": size, **spec}
    body = {key: value for key, value in body.items() if value is not None}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**body, "template": template},
    }


def make_deployment(name: str = "chat", replicas: int = 2, *, gpus: int = 0, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [make_container(gpus)]},
            },
            **spec,
        },
    }


def message_of(pod: Object) -> str:
    """Why the pod isn't scheduled."""
    conditions = pod["status"].get("conditions") or ()
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")
