"""Gauges of plans and commands, read from the record at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count, OuterRef, Subquery
from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from apps.clusters.models import Cluster
from apps.decisions.choices import CommandState
from apps.decisions.models import Command, Plan


class PlanCollector:
    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        commands = GaugeMetricFamily(
            "concertina_commands", "Recorded commands by state", labels=["state"]
        )
        counts = dict(Command.objects.values_list("state").annotate(n=Count("pk")).order_by())
        for state in CommandState:
            commands.add_metric([state], counts.get(state, 0))
        latency = GaugeMetricFamily(
            "concertina_plan_duration_seconds",
            "From taking up the snapshot to the last recorded plan",
            labels=["cluster"],
        )
        age = GaugeMetricFamily(
            "concertina_plan_age_seconds",
            "Since the last plan was seen to hold; absent before the first",
            labels=["cluster"],
        )
        now = timezone.now()
        for cluster, duration_ms, seen_at in newest_plans():
            if duration_ms is not None:
                latency.add_metric([cluster], duration_ms / 1000)
            age.add_metric([cluster], (now - seen_at).total_seconds())
        yield commands
        yield latency
        yield age


def newest_plans() -> list[tuple[str, float | None, datetime]]:
    newest = Plan.objects.filter(cluster=OuterRef("pk")).order_by("-number").values("pk")[:1]
    ids = Cluster.objects.filter(enabled=True).annotate(newest=Subquery(newest)).values("newest")
    return list(
        Plan.objects.filter(pk__in=ids).values_list("cluster__name", "duration_ms", "last_seen_at")
    )
