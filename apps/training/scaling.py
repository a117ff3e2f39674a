"""What a job's trainers measured by size: the points of its scaling curve, and what a resize costs.

A point is the running mean of samples a second at one replica count. From `MEMORY` samples on, old
ones fade, so that a point follows a job that changes; one that nobody has measured for `KEPT` isn't
used any more.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from apps.training.models import RecoveryEvent, ScalingPoint, ThroughputSample, TrainingJob

#: so many samples weigh in a mean
MEMORY = 200
KEPT = timedelta(days=7)
#: a deviation of fewer samples says nothing
LEAST_SAMPLES = 3
#: kinds of the events that tell what a planned resize cost, and how many of the last count
RESIZES = ("scale_up", "scale_down")
LAST_RESIZES = 5

Curve = Mapping[int, float]


def learn(job: TrainingJob, samples: Iterable[ThroughputSample]) -> None:
    """Take new samples into the points of their sizes. The caller's transaction holds the job's
    row locked."""
    by_size: dict[int, list[ThroughputSample]] = defaultdict(list)
    for sample in samples:
        if sample.replicas and sample.samples_per_s:
            by_size[sample.replicas].append(sample)
    if not by_size:
        return
    known = {point.replicas: point for point in job.scaling.filter(replicas__in=by_size)}
    for size, found in by_size.items():
        point = known.get(size) or ScalingPoint(
            job=job, replicas=size, samples=0, samples_per_s=0.0, updated_at=found[0].at
        )
        for sample in found:
            _add(point, sample)
        point.save()


def _add(point: ScalingPoint, sample: ThroughputSample) -> None:
    """Mean and variance with one more sample (West 1979; weights that fade: Finch 2009)."""
    point.samples = min(point.samples + 1, MEMORY)
    weight = 1 / point.samples
    distance = sample.samples_per_s - point.samples_per_s
    point.samples_per_s += weight * distance
    point.variance = (1 - weight) * (point.variance + weight * distance**2)
    point.updated_at = max(point.updated_at, sample.at)


def curves(jobs: Iterable[UUID], now: datetime) -> dict[UUID, tuple[Curve, Curve]]:
    """For each job id (samples/s by replicas, their relative standard deviation by replicas where
    there were several)."""
    found: dict[UUID, tuple[dict[int, float], dict[int, float]]] = defaultdict(lambda: ({}, {}))
    rows = ScalingPoint.objects.filter(job__in=list(jobs), updated_at__gte=now - KEPT)
    for job_id, size, samples, mean, variance in rows.order_by("job_id", "replicas").values_list(
        "job_id", "replicas", "samples", "samples_per_s", "variance"
    ):
        rates, deviations = found[job_id]
        rates[size] = mean
        if samples >= LEAST_SAMPLES and mean > 0:
            deviations[size] = math.sqrt(variance) / mean
    return dict(found)


def median_pause(job: TrainingJob) -> float | None:
    """Seconds: the median of the measured pauses of the job's last resizes; None without any."""
    pauses = (
        RecoveryEvent.objects.filter(job=job, kind__in=RESIZES, duration_s__isnull=False)
        .order_by("-started_at", "-id")
        .values_list("duration_s", flat=True)[:LAST_RESIZES]
    )
    return statistics.median(pauses) if pauses else None
