"""Builders of our own record's rows; every argument has a default."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from apps.clusters.models import Cluster
from apps.decisions.models import Command, Decision, Plan
from apps.elasticity.models import ElasticityPolicy
from apps.training.models import TrainingJob

AT = datetime(2026, 12, 1, tzinfo=UTC)


def make_cluster_row(name: str = "east", **fields: Any) -> Cluster:
    values = {"kubeconfig_path": "/nowhere/config", "lease_epoch": 3, **fields}
    return Cluster.objects.create(name=name, **values)


def make_policy_row(name: str = "steady", **fields: Any) -> ElasticityPolicy:
    values = {"min_replicas": 1, "max_replicas": 8, **fields}
    return ElasticityPolicy.objects.create(name=name, **values)


def make_job_row(cluster: Cluster, name: str = "llama", **fields: Any) -> TrainingJob:
    values: dict[str, Any] = {
        "kind": "Job",
        "namespace": "ml",
        "uid": f"uid-{name}",
        "granted": 4,
        "created_at": AT,
        **fields,
    }
    return TrainingJob.objects.create(cluster=cluster, name=name, **values)


def make_command_row(job: TrainingJob, to: int = 2, **fields: Any) -> Command:
    """A pending command 4 -> `to` with the plan and decision that it came from."""
    number = Plan.objects.filter(cluster=job.cluster).count() + 1
    plan = Plan.objects.create(
        cluster=job.cluster,
        number=number,
        digest="0" * 64,
        engine_version="1",
        planned_at=AT,
        last_seen_at=AT,
        lease_epoch=job.cluster.lease_epoch,
    )
    decision = Decision.objects.create(
        plan=plan,
        job=job,
        at=AT,
        current=4,
        desired=to,
        reason_code=fields.pop("reason_code", "shrinks_for_priority"),
        sentence="Shrinks for the sake of others.",
    )
    values = {
        "kind": "resize",
        "from_replicas": 4,
        "to_replicas": to,
        "epoch": job.cluster.lease_epoch,
        "precondition": "1",
        "created_at": AT,
        **fields,
    }
    return Command.objects.create(decision=decision, job=job, **values)
