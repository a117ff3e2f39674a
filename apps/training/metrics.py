"""Gauges of training jobs, read from the record at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from apps.training.choices import FINISHED_PHASES, JobPhase
from apps.training.models import TrainingJob


class JobCollector:
    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily(
            "concertina_jobs", "Live training jobs by phase", labels=["cluster", "phase"]
        )
        counts = (
            TrainingJob.objects.filter(finished_at=None)
            .values_list("cluster__name", "phase")
            .annotate(n=Count("pk"))
            .order_by()
        )
        found = {(cluster, phase): n for cluster, phase, n in counts}
        for cluster in sorted({cluster for cluster, _ in found}):
            for phase in JobPhase:
                if phase not in FINISHED_PHASES:
                    jobs.add_metric([cluster, phase], found.get((cluster, phase), 0))
        yield jobs
