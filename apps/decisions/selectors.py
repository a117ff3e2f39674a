"""Reads of plans, decisions and commands."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from apps.clusters.models import Cluster
from apps.decisions.choices import LIVE_STATES
from apps.decisions.models import Command, Decision, Plan


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


def pending(cluster: Cluster, now: datetime) -> dict[str, Any]:
    """Demand that waits, as the last plan saw it; `items` is None before the first plan."""
    plan = last_plan(cluster)
    return {
        "cluster": cluster.name,
        "plan": plan.pk if plan else None,
        "planned_at": plan.planned_at if plan else None,
        "last_seen_at": plan.last_seen_at if plan else None,
        "age_s": (now - plan.last_seen_at).total_seconds() if plan else None,
        "items": plan.pending if plan else None,
    }
