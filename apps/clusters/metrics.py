"""Gauges read from the record at each scrape: the truth is there, whichever process wrote it."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from apps.clusters import selectors
from apps.clusters.models import Cluster


class ClusterCollector:
    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        accelerators = GaugeMetricFamily(
            "concertina_accelerators",
            "Accelerators by state; absent while they aren't known",
            labels=["cluster", "resource", "state"],
        )
        age = GaugeMetricFamily(
            "concertina_cluster_observed_age_seconds",
            "Since the last complete observation; absent before the first",
            labels=["cluster"],
        )
        drift = GaugeMetricFamily(
            "concertina_capacity_drift",
            "Accelerators by which the states differ from the total: alarm on anything but 0",
            labels=["cluster", "resource"],
        )
        now = timezone.now()
        for cluster in Cluster.objects.filter(enabled=True):
            if cluster.last_observed_at is not None:
                age.add_metric([cluster.name], (now - cluster.last_observed_at).total_seconds())
            for entry in selectors.capacity_now(cluster, now):
                if entry["states"] is None or entry["total"] is None:
                    continue
                for state, n in entry["states"].items():
                    accelerators.add_metric([cluster.name, entry["resource"], state], n)
                drift.add_metric(
                    [cluster.name, entry["resource"]],
                    sum(entry["states"].values()) - entry["total"],
                )
        yield accelerators
        yield age
        yield drift
