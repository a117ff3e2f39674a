"""Writes of training jobs: one verb a function; row, audit and event in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import DataError, IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts import tokens
from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core import audit, events
from apps.elasticity.models import ElasticityPolicy
from apps.training import faults, sync
from apps.training.choices import JobPhase, ReplicaPhase
from apps.training.events import job_event
from apps.training.models import JobToken, Replica, TrainingJob
from apps.training.observed import ObservedJob, observed_jobs
from controlplane.engine.snapshot import ClusterSnapshot, Node

log = logging.getLogger(__name__)

# signal(cluster row, namespace, pod name, signal): controlplane.wiring.signal_pod
Signaller = Callable[[Cluster, str, str, str], None]
# Pods that have ended can't be signalled.
SIGNALLED = frozenset({ReplicaPhase.STARTING, ReplicaPhase.RUNNING, ReplicaPhase.TERMINATING})


class FaultDenied(Exception):
    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class NoSuchReplica(Exception):
    pass


class SignalFailed(Exception):
    pass


def sync_jobs(
    cluster: Cluster,
    snapshot: ClusterSnapshot,
    *,
    problems: Iterable[Mapping[str, Any]] = (),
    at: datetime,
) -> list[TrainingJob]:
    """Bring the rows of a cluster's jobs and replicas up to a complete snapshot; returns the jobs
    that changed. Nothing is locked or written when nothing differs.

    `problems` are workloads that can't be read: {workload: {kind, namespace, name}, uid, field,
    value, message}. They keep their rows, with the error. A job that is gone from the cluster is
    finished as deleted. What is only observed has no audit entry.
    """
    found = observed_jobs(snapshot)
    known = {job.uid: job for job in known_jobs(cluster, found)}
    wanted = wanted_values(cluster, found, known, problems, at)
    changed = [
        (job, values) for job, values in wanted if job._state.adding or sync.changes(job, values)
    ]
    nodes = {node.name: node for node in snapshot.nodes}
    written = []
    if changed:
        with transaction.atomic():
            # Ended ones first: a new object may have the name of one that is gone.
            for job, values in sorted(changed, key=lambda pair: not pair[1].get("finished_at")):
                if write_alone(job, {**values, "observed_at": at}, found.get(job.uid), nodes):
                    written.append(job)
            events.publish_many([job_event(job) for job in written])
    return written


def write_alone(
    job: TrainingJob,
    values: Mapping[str, Any],
    observed: ObservedJob | None,
    nodes: Mapping[str, Node],
) -> bool:
    """Write one job; what the database refuses is logged, and holds up no other job."""
    try:
        with transaction.atomic():
            write_job(job, values, observed, nodes)
    except (DataError, IntegrityError):
        log.exception("job %s (%s) can't be recorded", job.name, job.uid)
        return False
    return True


def known_jobs(cluster: Cluster, uids: Iterable[str]) -> Iterable[TrainingJob]:
    """The cluster's jobs that haven't finished, and finished ones whose objects are still there."""
    return (
        TrainingJob.objects.filter(cluster=cluster)
        .filter(Q(finished_at=None) | Q(uid__in=list(uids)))
        .select_related("cluster", "policy")
    )


def wanted_values(
    cluster: Cluster,
    found: Mapping[str, ObservedJob],
    known: Mapping[str, TrainingJob],
    problems: Iterable[Mapping[str, Any]],
    at: datetime,
) -> list[tuple[TrainingJob, dict[str, Any]]]:
    """Each job's row (perhaps new) with the fields that it should have."""
    policies = {policy.name: policy for policy in ElasticityPolicy.objects.all()}
    wanted = []
    for uid, observed in found.items():
        job = known.get(uid) or TrainingJob(cluster=cluster, uid=uid, created_at=at)
        wanted.append((job, sync.job_values(job, observed, policies, at)))
    unreadable = {problem["uid"]: problem for problem in problems if problem["uid"] not in found}
    for uid, problem in unreadable.items():
        job, values = sync.unreadable(cluster, problem, at)
        wanted.append((known.get(uid, job), values))
    for uid, job in known.items():
        if uid not in found and uid not in unreadable and not job.finished:
            ended = sync.finished_values(job, JobPhase.DELETED, at)
            wanted.append((job, {**ended, "replicas_digest": ""}))
    return wanted


def write_job(
    job: TrainingJob,
    values: Mapping[str, Any],
    observed: ObservedJob | None,
    nodes: Mapping[str, Node],
) -> None:
    """Write the given fields and no others: trainers' reports write theirs at the same time. A
    replica that was lost to its node is noted."""
    adding = job._state.adding
    replicas_changed = observed is not None and job.replicas_digest != values["replicas_digest"]
    for name, value in values.items():
        setattr(job, name, value)
    job.save(update_fields=None if adding else list(values))
    if job.phase == JobPhase.DELETED:
        job.replicas.all().delete()
    elif observed is not None and replicas_changed:
        before = list(job.replicas.all())
        if not job.finished:
            faults.record(job, faults.lost_to_nodes(before, observed, nodes), values["observed_at"])
        create, update, delete = sync.replica_changes(job, observed.replicas, before)
        job.replicas.filter(pk__in=delete).delete()
        if update:
            Replica.objects.bulk_update(update, sync.REPLICA_FIELDS)
        Replica.objects.bulk_create(create)


@transaction.atomic
def issue_job_token(job: TrainingJob, *, actor: User | None = None) -> str:
    """A new token for the job's trainer; its older tokens end. Returns the value, shown once."""
    now = timezone.now()
    value, prefix, digest = tokens.make("jt")
    job.tokens.filter(revoked_at=None).update(revoked_at=now)
    token = JobToken.objects.create(job=job, prefix=prefix, digest=digest, created_at=now)
    audit.record("issue_job_token", job, actor=actor, after={"prefix": token.prefix})
    return value


def is_job_token(job: TrainingJob, value: str) -> bool:
    """Whether a value is a token of this job that is still good."""
    return job.tokens.filter(digest=tokens.digest(value), revoked_at=None).exists()


def inject_fault(
    job: TrainingJob, replica_index: int, signal: str, *, actor: User, signaller: Signaller
) -> list[str]:
    """Send `signal` (KILL, TERM, STOP, CONT) to the pods of one replica; returns their names.

    Raises FaultDenied (not a sandbox, no permission, finished), NoSuchReplica, or SignalFailed
    when the cluster refuses. What was tried is in the audit trail in either of the last cases.
    """
    if not actor.has_perm("training.inject_fault"):
        raise FaultDenied(
            "Injecting faults needs the permission training.inject_fault.", "permission_denied"
        )
    if not job.cluster.sandbox:
        raise FaultDenied(
            f"Cluster {job.cluster.name!r} is not a sandbox: faults are injected only there.",
            "not_a_sandbox",
        )
    if job.finished:
        raise FaultDenied(f"Job {job.name!r} has finished.", "finished")
    replica = job.replicas.filter(index=replica_index).first()
    pods = [pod["name"] for pod in replica.pods if pod["phase"] in SIGNALLED] if replica else []
    if not pods:
        present = sorted(job.replicas.values_list("index", flat=True))
        raise NoSuchReplica(
            f"Replica {replica_index} of {job.name!r} has no running pod. "
            f"Replicas now: {', '.join(map(str, present)) or 'none'}."
        )
    outcome: dict[str, object] = {"replica_index": replica_index, "signal": signal, "pods": pods}
    try:
        for pod in pods:
            signaller(job.cluster, job.namespace, pod, signal)
    except Exception as error:
        outcome["error"] = str(error)
        raise SignalFailed(f"The cluster did not take the signal: {error}") from error
    finally:
        audit.record("inject_fault", job, actor=actor, after=outcome)
    return pods
