"""Bring the rows of training jobs up to what a snapshot shows. `actions.sync_jobs` is the door."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.clusters.models import Cluster
from apps.elasticity.models import ElasticityPolicy
from apps.training.choices import JobPhase, ReplicaPhase
from apps.training.models import Replica, TrainingJob
from apps.training.observed import ObservedJob, ObservedReplica, accelerator_of

# After a resize was written, pods get this long before a job short of them counts as degraded.
RESIZE_GRACE = timedelta(seconds=60)
# A trainer that has been silent for this long: what it last said of its quorum is no longer known.
SILENT_AFTER = timedelta(seconds=60)
REPLICA_FIELDS = ["pod_name", "node_name", "pods", "phase", "ready", "started_at"]
NOTHING_HELD = {"desired": 0, "granted": 0, "running": 0, "productive": 0}


def job_values(
    job: TrainingJob,
    observed: ObservedJob,
    policies: Mapping[str, ElasticityPolicy],
    at: datetime,
) -> dict[str, Any]:
    """The fields of a row that a snapshot determines; `job` is the row before."""
    workload = observed.workload
    resource, per_replica = accelerator_of(workload)
    values: dict[str, Any] = {
        "kind": workload.key.kind,
        "namespace": workload.key.namespace,
        "name": workload.key.name,
        "team": workload.team,
        "queue": workload.queue,
        "priority": workload.priority,
        "priority_class": workload.priority_class,
        "pods_per_replica": workload.shape.pods_per_replica,
        "accelerator_resource": resource,
        "accelerators_per_replica": per_replica,
        "created_at": datetime.fromtimestamp(workload.created_at, UTC),
        "replicas_digest": digest(observed.replicas),
        **policy_values(workload.policy, policies),
    }
    if workload.finished:
        return {**values, **finished_values(job, ended_as(observed), at)}
    if job.finished_at is not None:  # its label was taken away and put back: not planned yet
        job.desired = None
        values |= {"desired": None, "finished_at": None}
    values |= {
        "granted": workload.granted,
        "running": observed.running,
        "phase": phase_of(job, observed, at),
    }
    silent = job.last_report_at is None or at - job.last_report_at > SILENT_AFTER
    if silent:
        values |= {"productive": None, "throughput": None}
    if (observed.running, per_replica) != (job.running, job.accelerators_per_replica):
        values |= attained_values(job, at)
    return values


def attained_values(job: TrainingJob, at: datetime) -> dict[str, Any]:
    """The service so far, whenever the rate at which it grows is about to change."""
    return {"attained": attained(job, at), "attained_at": at}


def attained(job: TrainingJob, at: datetime) -> float:
    """Accelerator-seconds that the job's running replicas have had until `at`."""
    since = job.attained_at or at
    held = (job.running or 0) * job.accelerators_per_replica
    return job.attained + held * max(0.0, (at - since).total_seconds())


def policy_values(name: str | None, policies: Mapping[str, ElasticityPolicy]) -> dict[str, Any]:
    """The job's policy, or why it has none although its annotation names one."""
    if not name:
        return {"policy": None, "policy_name": "", "policy_error": ""}
    policy = policies.get(name)
    error = ""
    if policy is None:
        known = ", ".join(sorted(policies)[:10]) or "none yet"
        error = (
            f"There is no elasticity policy {name!r}: the job is left at its size. Make one of "
            f"that name, or change the annotation concertina.dev/elasticity-policy. Known: {known}."
        )
    return {"policy": policy, "policy_name": name[:253], "policy_error": error}


def ended_as(observed: ObservedJob) -> JobPhase:
    """A snapshot says that a workload has finished, its pods say how: failed only if none of them
    succeeded (pods removed by a shrink may count as failed, trainer 1593)."""
    phases = {replica.phase for replica in observed.replicas.values()}
    failed = ReplicaPhase.FAILED in phases and ReplicaPhase.SUCCEEDED not in phases
    return JobPhase.FAILED if failed else JobPhase.SUCCEEDED


def finished_values(job: TrainingJob, phase: JobPhase, at: datetime) -> dict[str, Any]:
    return {
        **NOTHING_HELD,
        **({} if job.finished else attained_values(job, at)),
        "phase": phase,
        "finished_at": job.finished_at or at,
        "throughput": None,
        "short_since": None,
        "growth_wanted_since": None,
    }


def phase_of(job: TrainingJob, observed: ObservedJob, at: datetime) -> JobPhase:
    granted, running = observed.workload.granted, observed.running
    if observed.workload.suspended:
        return JobPhase.SUSPENDED
    if running == 0:
        return JobPhase.STARTING if granted and observed.bound else JobPhase.PENDING
    resized = job.last_resize_at
    if observed.leaving or (job.desired is not None and job.desired != granted):
        return JobPhase.RESIZING
    if running >= granted:
        return JobPhase.RUNNING
    if resized is not None and at - resized < RESIZE_GRACE:
        return JobPhase.RESIZING
    # Fewer than granted: on the way up for the first time, or short after having been whole.
    if job.phase in (JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.DEGRADED):
        return JobPhase.DEGRADED
    return JobPhase.STARTING


def changes(row: Any, values: Mapping[str, Any]) -> list[str]:
    """Names of the fields that differ from a row's."""
    return [name for name, value in values.items() if getattr(row, name) != value]


def digest(replicas: Mapping[int, ObservedReplica]) -> str:
    """Of everything that Replica rows hold."""
    rows = [[index, replica.values] for index, replica in sorted(replicas.items())]
    return hashlib.sha256(json.dumps(rows, default=str, sort_keys=True).encode()).hexdigest()


def replica_changes(
    job: TrainingJob, observed: Mapping[int, ObservedReplica], known: Iterable[Replica]
) -> tuple[list[Replica], list[Replica], list[int]]:
    """(rows to create, rows to update, ids to delete)."""
    rows = {row.index: row for row in known}
    create, update = [], []
    for index, replica in observed.items():
        row = rows.pop(index, None)
        if row is None:
            create.append(Replica(job=job, index=index, **replica.values))
        elif changes(row, replica.values):
            for name, value in replica.values.items():
                setattr(row, name, value)
            update.append(row)
    return create, update, [row.pk for row in rows.values()]


def unreadable(
    cluster: Cluster, problem: Mapping[str, Any], at: datetime
) -> tuple[TrainingJob, dict[str, Any]]:
    """A row for a workload that can't be read, and the fields that say so."""
    key = problem["workload"]
    text = f"{problem['field']}={problem['value']!r}: {problem['message']}"
    job = TrainingJob(
        cluster=cluster,
        uid=problem["uid"],
        kind=key["kind"],
        namespace=key["namespace"],
        name=key["name"],
        created_at=at,
    )
    return job, {"policy": None, "policy_error": text}
