"""Writes of training jobs: one verb a function; row, audit and event in one transaction."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction
from django.utils import timezone

from apps.accounts import tokens
from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core import audit
from apps.training.choices import ReplicaPhase
from apps.training.models import JobToken, TrainingJob

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


@transaction.atomic
def issue_job_token(job: TrainingJob, *, actor: User | None = None) -> str:
    """A new token for the job's trainer; its older tokens end. Returns the value, shown once."""
    now = timezone.now()
    value, prefix, digest = tokens.make("jt")
    job.tokens.filter(revoked_at=None).update(revoked_at=now)
    token = JobToken.objects.create(job=job, prefix=prefix, digest=digest, created_at=now)
    audit.record("issue_job_token", job, actor=actor, after={"prefix": token.prefix})
    return value


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
