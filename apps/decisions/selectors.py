"""Reads of plans, decisions and commands."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from apps.clusters.models import Cluster
from apps.decisions.choices import LIVE_STATES
from apps.decisions.documents import explained, histories
from apps.decisions.models import Command, Decision, Plan
from apps.training.models import TrainingJob
from controlplane.engine.snapshot import DemandHistory


def decisions() -> QuerySet[Decision]:
    return Decision.objects.select_related("plan__cluster", "job", "command")


def last_plan(cluster: Cluster) -> Plan | None:
    return cluster.plans.defer("inputs").order_by("-number").first()


def live_commands(cluster: Cluster) -> QuerySet[Command]:
    """Commands still under way, oldest first, with their jobs."""
    return (
        Command.objects.filter(job__cluster=cluster, state__in=sorted(LIVE_STATES))
        .select_related("job", "decision")
        .order_by("created_at", "id")
    )


def demand_histories(cluster: Cluster) -> dict[str, DemandHistory]:
    """What the last plan knew of each demand that waits, for the next snapshot."""
    plan = last_plan(cluster)
    return histories(plan.pending) if plan else {}


def pending(cluster: Cluster, now: datetime, *, rejected: bool = True) -> dict[str, Any]:
    """Demand that waits, as the last plan saw it; `items` is None before the first plan.
    `rejected`: with the candidates that couldn't help, which may be many."""
    plan = last_plan(cluster)
    items = explained(plan.pending, plan.explanations, rejected=rejected) if plan else None
    kept = plan.reservations if plan else None
    return {**_seen(cluster, plan, now), "items": items, "reservations": kept}


def notices(cluster: Cluster, now: datetime) -> dict[str, Any]:
    """What an operator should know, as the last plan saw it; None before the first plan."""
    plan = last_plan(cluster)
    return {**_seen(cluster, plan, now), "items": plan.notices if plan else None}


def why_pending(cluster: Cluster, workload: str, now: datetime) -> dict[str, Any] | None:
    """Why one workload or pod waits, from the last plan, and the newest decision of the job of that
    name: why it has no more. None where nothing of that name waits or runs."""
    plan = last_plan(cluster)
    rows = [row for row in plan.pending if row["workload"] == workload] if plan else []
    job = _job(cluster, workload)
    if job is None and not rows:
        return None
    kept = plan.reservations if plan else []
    return {
        **_seen(cluster, plan, now),
        "workload": workload,
        "waits": bool(rows),
        "items": explained(rows, plan.explanations, rejected=True) if plan else [],
        "reservations": [row for row in kept if row["demand"] == workload],
        "decision": decisions().filter(job=job).order_by("-at", "-id").first() if job else None,
    }


def _job(cluster: Cluster, workload: str) -> TrainingJob | None:
    kind, namespace, name = workload.split("/")
    return TrainingJob.objects.filter(
        cluster=cluster, kind=kind, namespace=namespace, name=name, finished_at=None
    ).first()


def _seen(cluster: Cluster, plan: Plan | None, now: datetime) -> dict[str, Any]:
    """Which plan an answer is from, and how old that is."""
    return {
        "cluster": cluster.name,
        "plan": plan.pk if plan else None,
        "planned_at": plan.planned_at if plan else None,
        "last_seen_at": plan.last_seen_at if plan else None,
        "age_s": (now - plan.last_seen_at).total_seconds() if plan else None,
    }
