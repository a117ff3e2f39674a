"""Reads of training jobs and of what their trainers reported."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db.models import Avg, Count, Max, QuerySet

from apps.core import series
from apps.training.models import ThroughputSample, TrainingJob

MEANS = (
    "samples_per_s", "tokens_per_s", "loss", "learning_rate", "step_ms", "mfu", "grad_norm",
    "data_wait_ms",
)  # fmt: skip
# What can't be averaged: the value of the bucket's last sample.
LASTS = ("global_batch_size", "world_size", "phases_ms", "tokens", "bytes_moved")


def jobs() -> QuerySet[TrainingJob]:
    return TrainingJob.objects.select_related("cluster", "policy")


def sample_series(
    job: TrainingJob, since: datetime, until: datetime, points: int
) -> tuple[float | None, list[dict[str, Any]]]:
    """(seconds a bucket, or None where every sample is shown; points, oldest first).

    A series of more than `points` samples is averaged by bucket of time in the database; `samples`
    says how many each point stands for; sizes, phases and counters are those of its last sample.
    """
    rows = ThroughputSample.objects.filter(job=job, at__gte=since, at__lte=until).order_by()
    fields = ("at", "step", *MEANS, *LASTS)
    first = list(rows.order_by("at", "id").values(*fields)[: points + 1])
    if len(first) <= points:
        return None, [{**row, "samples": 1} for row in first]
    width = series.width(since, until, points)
    buckets = list(
        rows.annotate(bucket=series.TimeBucket("at", width))
        .values("bucket")
        .annotate(
            samples=Count("id"),
            last=Max("id"),
            **{f"mean_{name}": Avg(name) for name in MEANS},
        )
        .order_by("bucket")
    )[-points:]
    last = ThroughputSample.objects.in_bulk([bucket["last"] for bucket in buckets])
    return width, [
        {
            "at": min(max(datetime.fromtimestamp((b["bucket"] + 0.5) * width, UTC), since), until),
            "step": last[b["last"]].step,
            "samples": b["samples"],
            **{name: b[f"mean_{name}"] for name in MEANS},
            **{name: getattr(last[b["last"]], name) for name in LASTS},
        }
        for b in buckets
    ]
