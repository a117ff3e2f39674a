"""The demo's objects, as a team would write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.sandbox.demo.demand import ResearchJob

Manifest = dict[str, Any]
GPU, CPU_DEVICE = "nvidia.com/gpu", "concertina.dev/cpu-device"
SERVING, RESEARCH, TRAINING = "serving", "research", "training"
NAMESPACES = (SERVING, RESEARCH, TRAINING)
INFERENCE, INFERENCE_ACCELERATORS = "chat", 4
REAL_JOB, AUTHORITY = "tiny-llama", "trainer-authority"
SIMULATED_LABEL = "sandbox.concertina.dev/trainer"  # value: the simulated job's name
PRIORITIES = {"inference": 1000, "research": 500, "training-high": 200, "training-low": 100}
REAL_STEP_MS = 250  # least time of a step: replicas that share this machine's cores leave some
REAL_CHECKPOINT_STEPS = 100
_EVER = 1_000_000  # backoffLimit: a demo is shown many faults


@dataclass(frozen=True, slots=True)
class Simulated:
    """An elastic job whose containers are emulated. `samples_per_s`: of one replica."""

    name: str
    team: str
    priority: str
    policy: str
    start: int
    min_replicas: int
    global_batch_size: int
    samples_per_s: float
    exponent: float
    tokens_per_sample: int
    total_steps: int


SIMULATED = (
    Simulated(
        "atlas-70b", "foundation", "training-high", "elastic-2-16", 2, 2,
        global_batch_size=1024, samples_per_s=62.0, exponent=0.93,
        tokens_per_sample=4096, total_steps=1_000_000,
    ),
    Simulated(
        "vision-7b", "perception", "training-low", "elastic-1-12", 1, 1,
        global_batch_size=768, samples_per_s=88.0, exponent=0.88,
        tokens_per_sample=2048, total_steps=1_000_000,
    ),
)  # fmt: skip


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def priority_class(name: str) -> Manifest:
    """Never preempts by itself: to make room is Concertina's work."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": PRIORITIES[name],
        "preemptionPolicy": "Never",
    }


def container(resource: str, count: int, *, cpu: str, memory: str, **more: Any) -> Manifest:
    requests = {"cpu": cpu, "memory": memory}
    limits = {}
    if count:
        requests[resource] = limits[resource] = str(count)
    return {
        "name": "main",
        "image": "registry.example/demo:1",
        "resources": {"requests": requests, "limits": limits},
        **more,
    }


def inference(replicas: int) -> Manifest:
    """The Deployment that follows the day."""
    labels = {"app": INFERENCE, "concertina.dev/team": "serving"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": INFERENCE, "namespace": SERVING, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": INFERENCE}},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {"sandbox.concertina.dev/boot-seconds": "2"},
                },
                "spec": {
                    "priorityClassName": "inference",
                    "terminationGracePeriodSeconds": 10,
                    "containers": [container(GPU, INFERENCE_ACCELERATORS, cpu="8", memory="64Gi")],
                },
            },
        },
    }


def research(job: ResearchJob) -> Manifest:
    """A short job that nobody resizes; it removes itself."""
    labels = {"app": "probe", "concertina.dev/team": "research"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name, "namespace": RESEARCH, "labels": labels},
        "spec": {
            "backoffLimit": 1,
            "ttlSecondsAfterFinished": 5,
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {"sandbox.concertina.dev/exit-after": str(job.seconds)},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "priorityClassName": "research",
                    "containers": [container(GPU, job.accelerators, cpu="2", memory="16Gi")],
                },
            },
        },
    }


def elastic_job(
    name: str, team: str, priority: str, policy: str, start: int, template: Manifest
) -> Manifest:
    """An Indexed Job that Concertina may resize."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": TRAINING,
            "labels": {"concertina.dev/managed": "true", "concertina.dev/team": team},
            "annotations": {"concertina.dev/elasticity-policy": policy},
        },
        "spec": {
            "completionMode": "Indexed",
            "parallelism": start,
            "completions": start,
            "backoffLimit": _EVER,
            "template": {
                "metadata": {
                    "labels": {"concertina.dev/team": team, **template.get("labels", {})},
                    "annotations": template.get("annotations", {}),
                },
                "spec": {
                    "restartPolicy": "Never",
                    "priorityClassName": priority,
                    "terminationGracePeriodSeconds": 30,
                    **template["spec"],
                },
            },
        },
    }


def simulated_job(job: Simulated) -> Manifest:
    """One pod of eight accelerators a replica."""
    main = container(GPU, 8, cpu="32", memory="256Gi", envFrom=[_telemetry(job.name)])
    template = {
        "labels": {SIMULATED_LABEL: job.name},
        "annotations": {
            "sandbox.concertina.dev/boot-seconds": "3",
            "sandbox.concertina.dev/stop-seconds": "2",
        },
        "spec": {"containers": [main]},
    }
    return elastic_job(job.name, job.team, job.priority, job.policy, job.start, template)


def real_job(authority: str, checkpoints: str) -> Manifest:
    """The training job whose pods are processes on this machine, one a node of pool `local`.

    `checkpoints`: a folder, from which it goes on when everything was stopped at once.
    """
    main = container(
        CPU_DEVICE,
        1,
        cpu="500m",
        memory="1Gi",
        # the machine is shared with everything else that the demo runs
        command=["nice", "-n", "10", "python", "-m", "trainer_runtime.examples.tiny_llama"],
        env=[
            {"name": "CONCERTINA_AUTHORITY", "value": authority},
            {"name": "CONCERTINA_CHECKPOINT_DIR", "value": checkpoints},
            {"name": "CONCERTINA_CHECKPOINT_EVERY", "value": str(REAL_CHECKPOINT_STEPS)},
            {"name": "CONCERTINA_STEP_MS", "value": str(REAL_STEP_MS)},
            {"name": "OMP_NUM_THREADS", "value": "1"},
            _from_field("POD_NAME", "metadata.name"),
            _from_field("POD_NAMESPACE", "metadata.namespace"),
        ],
        envFrom=[_telemetry(REAL_JOB)],
    )
    template = {"annotations": _LOCAL, "spec": {"tolerations": [_TOLERATION], "containers": [main]}}
    return elastic_job(REAL_JOB, "foundation", "training-high", "elastic-1-4", 1, template)


def authority(host: str, port: int) -> Manifest:
    """The trainers' membership authority: one process that outlives every rank."""
    labels = {"app": AUTHORITY, "concertina.dev/team": "foundation"}
    command = ["python", "-m", "trainer_runtime.authority", "--host", host, "--port", str(port)]
    main = container("", 0, cpu="100m", memory="256Mi", command=command)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": AUTHORITY, "namespace": TRAINING, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # two can't listen on one port
            "selector": {"matchLabels": {"app": AUTHORITY}},
            "template": {
                "metadata": {"labels": labels, "annotations": _LOCAL},
                "spec": {
                    "priorityClassName": "training-high",
                    "terminationGracePeriodSeconds": 5,
                    "nodeSelector": {"concertina.dev/pool": "local"},
                    "tolerations": [_TOLERATION],
                    "containers": [main],
                },
            },
        },
    }


_LOCAL = {"sandbox.concertina.dev/run": "local"}
_TOLERATION = {
    "key": "concertina.dev/local",
    "operator": "Equal",
    "value": "true",
    "effect": "NoSchedule",
}


def _telemetry(job: str) -> Manifest:
    """Where to report, and the token: Concertina writes this Secret when it first sees the job."""
    return {"secretRef": {"name": f"{job}-concertina"}}


def _from_field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
