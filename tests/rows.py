"""Builders of rows of the record: give what the case is about, the rest is ordinary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import Permission

from apps.accounts.models import User
from apps.clusters.models import CapacitySample, Cluster
from apps.decisions.choices import LIVE_STATES, CommandState
from apps.decisions.models import Command, Decision, Plan
from apps.elasticity.models import ElasticityPolicy
from apps.priorities.models import Cohort, PriorityClass, Queue
from apps.training.choices import FINISHED_PHASES
from apps.training.models import RecoveryEvent, Replica, RunAttempt, ThroughputSample, TrainingJob

AT = datetime(2026, 11, 2, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def make_user(name: str = "ann", *, staff: bool = False, permissions: Any = ()) -> User:
    user = User.objects.create_user(name, password="open-sesame-please", is_staff=staff)
    for wanted in permissions:
        app, _, codename = wanted.partition(".")
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label=app, codename=codename)
        )
    return User.objects.get(pk=user.pk)


def make_cluster(name: str = "east", **fields: Any) -> Cluster:
    return Cluster.objects.create(
        name=name, **{"kubeconfig_path": "/etc/kube", "lease_epoch": 1, **fields}
    )


def make_class(name: str = "serving", value: int = 1000, **fields: Any) -> PriorityClass:
    return PriorityClass.objects.create(name=name, value=value, **fields)


def make_queue(
    cluster: Cluster | None = None,
    name: str = "research",
    quotas: dict[str, dict[str, int | None]] | None = None,
    **fields: Any,
) -> Queue:
    """`quotas`: resource -> {nominal, borrowing_limit, lending_limit}."""
    row = Queue.objects.create(cluster=cluster or make_cluster(), name=name, **fields)
    for resource, limits in (quotas or {}).items():
        row.quotas.create(resource=resource, **limits)
    return row


def make_cohort(
    cluster: Cluster | None = None, name: str = "all", quotas: dict[str, int] | None = None
) -> Cohort:
    """`quotas`: resource -> nominal."""
    row = Cohort.objects.create(cluster=cluster or make_cluster(), name=name)
    for resource, nominal in (quotas or {}).items():
        row.quotas.create(resource=resource, nominal=nominal)
    return row


def make_policy_row(name: str = "elastic", **fields: Any) -> ElasticityPolicy:
    return ElasticityPolicy.objects.create(
        name=name, **{"min_replicas": 1, "max_replicas": 8, **fields}
    )


def make_job(cluster: Cluster | None = None, name: str = "llama", **fields: Any) -> TrainingJob:
    values = {
        "kind": "Job",
        "namespace": "ml",
        "uid": f"uid-{name}",
        "accelerator_resource": GPU,
        "accelerators_per_replica": 8,
        "created_at": AT,
        "phase": "running",
        **fields,
    }
    if values["phase"] in FINISHED_PHASES:
        values.setdefault("finished_at", AT)
    return TrainingJob.objects.create(cluster=cluster or make_cluster(), name=name, **values)


def make_replica(job: TrainingJob, index: int = 0, **fields: Any) -> Replica:
    pod = f"{job.name}-{index}"
    values = {
        "pod_name": pod,
        "node_name": "n0",
        "phase": "running",
        "ready": True,
        "pods": [{"name": pod, "node": "n0", "phase": "running", "ready": True}],
        **fields,
    }
    return Replica.objects.create(job=job, index=index, **values)


def make_attempt(job: TrainingJob, attempt: str = "a1", **fields: Any) -> RunAttempt:
    return RunAttempt.objects.create(job=job, attempt=attempt, **{"started_at": AT, **fields})


def make_recovery(attempt: RunAttempt, sequence: int = 0, **fields: Any) -> RecoveryEvent:
    values = {
        "kind": "replica_lost",
        "started_at": AT,
        "duration_s": 0.4,
        "stages": [{"stage": "detect", "start_s": 0.0, "duration_s": 0.4}],
        **fields,
    }
    return RecoveryEvent.objects.create(
        job=attempt.job, attempt=attempt, sequence=sequence, **values
    )


def make_sample(attempt: RunAttempt, sequence: int, at: datetime, **fields: Any) -> Any:
    return ThroughputSample(
        job=attempt.job,
        attempt=attempt,
        sequence=sequence,
        at=at,
        **{"step": sequence, "loss": 2.0, "samples_per_s": 10.0, "world_size": 2, **fields},
    )


def make_capacity(
    cluster: Cluster, at: datetime, used: int = 0, total: int = 8, **fields: Any
) -> CapacitySample:
    values = {
        "resource": GPU,
        "total": total,
        "states": {"used": used, "free": total - used},
        "holders": {"Job/ml/llama": used} if used else {},
        **fields,
    }
    return CapacitySample.objects.create(cluster=cluster, at=at, **values)


def make_plan(cluster: Cluster, number: int = 1, **fields: Any) -> Plan:
    values = {
        "digest": "0" * 64,
        "engine_version": "1",
        "planned_at": AT,
        "last_seen_at": fields.get("planned_at", AT),
        "lease_epoch": cluster.lease_epoch,
        **fields,
    }
    return Plan.objects.create(cluster=cluster, number=number, **values)


def make_decision(job: TrainingJob, plan: Plan | None = None, **fields: Any) -> Decision:
    plan = plan or make_plan(job.cluster, Plan.objects.filter(cluster=job.cluster).count() + 1)
    values = {
        "at": plan.planned_at,
        "current": 4,
        "desired": 2,
        "reason_code": "shrinks_for_priority",
        "sentence": "Shrinks from 4 to 2 replicas.",
        "numbers": {"from": 4, "to": 2},
        **fields,
    }
    return Decision.objects.create(plan=plan, job=job, **values)


def make_command(job: TrainingJob, decision: Decision | None = None, **fields: Any) -> Command:
    state = fields.get("state", CommandState.PENDING)
    values = {
        "kind": "resize",
        "from_replicas": 4,
        "to_replicas": 2,
        "epoch": job.cluster.lease_epoch,
        "precondition": "7",
        "created_at": AT,
        "applied_at": AT if state in (CommandState.APPLIED, CommandState.DONE) else None,
        "finished_at": None if state in LIVE_STATES else AT,
        **fields,
    }
    return Command.objects.create(decision=decision or make_decision(job), job=job, **values)
