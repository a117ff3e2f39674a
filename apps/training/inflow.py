"""Inflow of inelastic demand by the hour, from the recorded capacity: what forecasts are made of.

The capacity samples say who holds how much, to the second, and go after a week; here an hour is one
number and stays for `KEPT`. Demand without an elasticity policy is what growth has to make room
for: it can't wait at a smaller size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.db.models import Max

from apps.clusters.models import CapacitySample, Cluster
from apps.training.models import InflowHour, TrainingJob
from controlplane.engine.forecasts import GAP_S, inflow_by_hour, quantiles_by_hour

#: weeks that a forecast is made from
WEEKS = timedelta(weeks=4)
KEPT = WEEKS + timedelta(days=1)
#: capacity samples are kept so long: no hour before that can be made up for
SAMPLES_KEPT = timedelta(days=7)
#: samples are read for so long at a time
AT_ONCE = timedelta(hours=12)

HOUR = timedelta(hours=1)


def record_inflow(cluster: Cluster, now: datetime) -> int:
    """Record every whole hour since the last one recorded; how many rows were written."""
    until = now.replace(minute=0, second=0, microsecond=0)
    last = InflowHour.objects.filter(cluster=cluster).aggregate(at=Max("hour"))["at"]
    start = until - SAMPLES_KEPT if last is None else max(last + HOUR, until - SAMPLES_KEPT)
    elastic = set(elastic_names(cluster))
    written = 0
    while start < until:
        end = min(start + AT_ONCE, until)
        written += _record(cluster, start, end, elastic)
        start = end
    return written


def _record(cluster: Cluster, start: datetime, end: datetime, elastic: set[str]) -> int:
    levels: dict[str, list[tuple[float, float]]] = defaultdict(list)
    samples = CapacitySample.objects.filter(
        cluster=cluster, at__gte=start - timedelta(seconds=GAP_S), at__lt=end
    )
    for resource, at, holders in samples.values_list("resource", "at", "holders").iterator():
        held = sum(n for name, n in holders.items() if name not in elastic)
        levels[resource].append((at.timestamp(), float(held)))
    rows = [
        InflowHour(cluster=cluster, resource=resource, hour=hour, inflow=inflow)
        for resource, found in levels.items()
        for hour, inflow in ((_utc(at), inflow) for at, inflow in inflow_by_hour(found))
        if start <= hour < end
    ]
    InflowHour.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
    return len(rows)


def elastic_names(cluster: Cluster) -> Iterable[str]:
    """Jobs of the cluster, past ones too, that were under a policy, as the samples name them."""
    rows = TrainingJob.objects.filter(cluster=cluster).exclude(policy_name="")
    for kind, namespace, name in rows.values_list("kind", "namespace", "name").distinct():
        yield f"{kind}/{namespace}/{name}"


def expected_inflow(
    cluster: Cluster, quantile: float, now: datetime
) -> dict[str, tuple[float, ...]]:
    """By resource, for each hour of the week (UTC), the inflow at a quantile of the last weeks. A
    resource that was never recorded is absent."""
    rows = InflowHour.objects.filter(cluster=cluster, hour__gte=now - WEEKS, hour__lte=now)
    samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for resource, hour, inflow in rows.order_by("hour").values_list("resource", "hour", "inflow"):
        samples[resource].append((hour.timestamp(), inflow))
    return {
        resource: quantiles_by_hour(found, quantile) for resource, found in sorted(samples.items())
    }


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
