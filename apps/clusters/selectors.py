"""Reads of clusters: capacity now and over time. What isn't known is None, never 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, TypedDict

from django.db.models import Count, Max, Q, QuerySet

from apps.clusters.choices import CapacityState
from apps.clusters.models import (
    CapacitySample,
    Cluster,
    ClusterSettings,
    Node,
    settings_to_engine,
)
from apps.core import series
from controlplane.engine.cluster_policy import ClusterPolicy

# The loop accounts for a cluster at least every few seconds; silence for this long is not knowing.
STALE_AFTER = timedelta(seconds=30)

States = dict[str, int]


class CapacityNow(TypedDict):
    """`states` is None while it isn't known; `age_s` then says how old the last knowledge is."""

    resource: str
    pool: str | None
    total: int | None
    states: States | None
    holders: dict[str, int] | None
    observed_at: datetime | None
    age_s: float | None


def clusters() -> QuerySet[Cluster]:
    return Cluster.objects.annotate(
        node_count=Count("nodes", filter=Q(nodes__gone_at__isnull=True))
    ).order_by("name")


def settings_of(cluster: Cluster) -> ClusterSettings:
    """A cluster's settings; where it has none, the defaults, unsaved."""
    row = ClusterSettings.objects.filter(cluster=cluster).first()
    return row if row is not None else ClusterSettings(cluster=cluster)


def cluster_policy(cluster: Cluster) -> ClusterPolicy:
    """The same as the engine reads them, for a PolicySet."""
    return settings_to_engine(settings_of(cluster))


def live_nodes(cluster: Cluster) -> QuerySet[Node]:
    return cluster.nodes.filter(gone_at=None).select_related("pool").order_by("name", "id")


def is_fresh(cluster: Cluster, now: datetime) -> bool:
    """Whether the capacity in our rows may be shown as that of now."""
    accounted = cluster.accounted_at
    return accounted is not None and now - accounted <= STALE_AFTER


def full_states(states: dict[str, int]) -> States:
    """Every state by name; the accounting leaves out those that count nothing."""
    return {state: int(states.get(state, 0)) for state in CapacityState.values}


def add_up(nodes: Iterable[Node]) -> dict[str, tuple[int, States]]:
    """Totals and states by resource. Resources are never added up across names."""
    totals: dict[str, int] = defaultdict(int)
    states: dict[str, States] = defaultdict(lambda: dict.fromkeys(CapacityState.values, 0))
    for node in nodes:
        for resource, total in node.capacity.items():
            totals[resource] += total
            for state, count in node.states.get(resource, {}).items():
                states[resource][state] = states[resource].get(state, 0) + count
    return {resource: (totals[resource], states[resource]) for resource in sorted(totals)}


def capacity_now(cluster: Cluster, now: datetime) -> list[CapacityNow]:
    """One entry a resource, from the nodes as last observed."""
    nodes = list(live_nodes(cluster))
    holders = latest_holders(cluster)
    return [
        _now(cluster, now, resource, None, total, states, holders.get(resource))
        for resource, (total, states) in add_up(nodes).items()
    ]


def capacity_by_pool(cluster: Cluster, now: datetime) -> list[CapacityNow]:
    """One entry a pool and resource."""
    by_pool: dict[str, list[Node]] = defaultdict(list)
    for node in live_nodes(cluster):
        by_pool[node.pool.name if node.pool else ""].append(node)
    return [
        _now(cluster, now, resource, pool, total, states, None)
        for pool, nodes in sorted(by_pool.items())
        for resource, (total, states) in add_up(nodes).items()
    ]


def latest_holders(cluster: Cluster) -> dict[str, dict[str, int]]:
    """{resource: {holder: n}} of the newest sample of each resource."""
    newest = (
        CapacitySample.objects.filter(cluster=cluster)
        .values("resource")
        .annotate(newest=Max("at"))
        .values_list("resource", "newest")
    )
    found: dict[str, dict[str, int]] = {}
    for resource, at in list(newest):
        sample = CapacitySample.objects.get(cluster=cluster, resource=resource, at=at)
        found[resource] = sample.holders
    return found


def _now(
    cluster: Cluster,
    now: datetime,
    resource: str,
    pool: str | None,
    total: int,
    states: States,
    holders: dict[str, int] | None,
) -> CapacityNow:
    fresh = is_fresh(cluster, now)
    observed = cluster.accounted_at
    return {
        "resource": resource,
        "pool": pool,
        "total": total if fresh else None,
        "states": states if fresh else None,
        "holders": holders if fresh else None,
        "observed_at": observed,
        "age_s": (now - observed).total_seconds() if observed else None,
    }


class CapacityPoint(TypedDict):
    at: datetime
    total: int
    states: States
    holders: dict[str, int]


def capacity_series(
    cluster: Cluster, resource: str, since: datetime, until: datetime, points: int
) -> list[CapacityPoint]:
    """The last sample of each bucket of time, oldest first, at most `points`.

    A sample is kept whole (its states add up to its total): states are never averaged. A bucket
    without a sample has no point. The last value before `since` opens the series, because samples
    are written when something changes.
    """
    rows = CapacitySample.objects.filter(cluster=cluster, resource=resource)
    newest = (
        rows.filter(at__gte=since, at__lte=until)
        .order_by()
        .annotate(bucket=series.TimeBucket("at", series.width(since, until, points)))
        .values("bucket")
        .annotate(newest=Max("id"))
        .values("newest")
    )
    samples = list(
        rows.filter(id__in=newest).order_by("at").values("at", "total", "states", "holders")
    )[-points:]
    return [{**row, "states": full_states(row["states"])} for row in samples]


def node_view(node: Node, *, fresh: bool) -> dict[str, Any]:
    """A node's resources for the API: [{resource, total, states}]."""
    return {
        "resources": [
            {
                "resource": resource,
                "total": total,
                "states": full_states(node.states[resource])
                if fresh and resource in node.states
                else None,
            }
            for resource, total in sorted(node.capacity.items())
        ]
    }
