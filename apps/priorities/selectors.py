"""Reads of priorities, queues and cohorts, as the engine takes them: for a PolicySet."""

from __future__ import annotations

from apps.clusters.models import Cluster
from apps.priorities.models import (
    Cohort,
    PriorityClass,
    Queue,
    cohort_to_engine,
    queue_to_engine,
)
from controlplane.engine.queues import CohortPolicy, QueuePolicy
from controlplane.engine.types import ReclaimPolicy


def queues(cluster: Cluster) -> dict[str, QueuePolicy]:
    """Every queue of a cluster by name."""
    rows = Queue.objects.filter(cluster=cluster).prefetch_related("quotas").order_by("name")
    return {row.name: queue_to_engine(row, row.quotas.all()) for row in rows}


def cohorts(cluster: Cluster) -> dict[str, CohortPolicy]:
    """Every cohort of a cluster that owns something itself, by name."""
    rows = Cohort.objects.filter(cluster=cluster).prefetch_related("quotas").order_by("name")
    return {row.name: cohort_to_engine(row, row.quotas.all()) for row in rows}


def preemption() -> dict[str, ReclaimPolicy]:
    """What a pending workload may take from others, by the name of its priority class."""
    rows = PriorityClass.objects.order_by("name").values_list("name", "preemption_policy")
    return {name: ReclaimPolicy(policy) for name, policy in rows}
