"""What the engine needs besides the cluster: policies, commands in flight, reports and history.

Each function reads one thing of the record; `inputs` puts them into the observed snapshot.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from django.db.models import Avg

from apps.clusters.models import Cluster
from apps.clusters.selectors import cluster_policy
from apps.decisions.choices import CommandState
from apps.decisions.models import Command as CommandRow
from apps.decisions.selectors import live_commands
from apps.elasticity.selectors import policies
from apps.priorities import selectors as priorities
from apps.training.models import ThroughputSample, TrainingJob
from controlplane.engine.policy import PolicySet
from controlplane.engine.snapshot import (
    ClusterSnapshot,
    History,
    InFlight,
    TrainerReport,
)
from controlplane.engine.types import WorkloadKey

#: resizes are remembered this long: the window of a policy's restart budget
HISTORY = timedelta(hours=1)
#: throughput by size comes from samples of this long
CURVE = timedelta(minutes=15)


def inputs(snapshot: ClusterSnapshot, cluster: Cluster, now: float) -> ClusterSnapshot:
    """The snapshot with everything that only our record knows."""
    jobs = {key_of(job): job for job in live_jobs(cluster)}
    return dataclasses.replace(
        snapshot,
        reports=reports_of(jobs, now),
        in_flight=in_flight_of(cluster),
        history=histories_of(cluster, jobs, now),
    )


def live_jobs(cluster: Cluster) -> Iterable[TrainingJob]:
    return TrainingJob.objects.filter(cluster=cluster, finished_at=None).select_related("policy")


def key_of(job: TrainingJob) -> WorkloadKey:
    return WorkloadKey(job.kind, job.namespace, job.name)


def load_policies(cluster: Cluster) -> PolicySet:
    """Everything of the record that a plan of this cluster may refer to, as the engine reads it."""
    return PolicySet(
        policies=policies(),
        queues=priorities.queues(cluster),
        cohorts=priorities.cohorts(cluster),
        preemption=priorities.preemption(),
        cluster=cluster_policy(cluster),
    )


def in_flight_of(cluster: Cluster) -> tuple[InFlight, ...]:
    """Commands that are recorded or written and not yet confirmed, oldest first."""
    return tuple(
        InFlight(
            command_id=str(row.pk),
            workload=key_of(row.job),
            from_replicas=row.from_replicas,
            to_replicas=row.to_replicas,
            issued_at=row.created_at.timestamp(),
            state=row.state,
        )
        for row in live_commands(cluster)
    )


def reports_of(
    jobs: Mapping[WorkloadKey, TrainingJob], now: float
) -> dict[WorkloadKey, TrainerReport]:
    """What trainers last said; a job whose trainer never reported has no entry."""
    reporting = {key: job for key, job in jobs.items() if job.last_report_at is not None}
    curves = curves_of(reporting.values(), now)
    return {
        key: TrainerReport(
            productive=job.productive,
            quorum_id=job.quorum_id,
            committed_steps=job.committed_steps,
            total_steps=job.total_steps,
            throughput=curves.get(job.pk, {}),
            resize_cost_s=None,
            reported_at=job.last_report_at.timestamp(),
        )
        for key, job in reporting.items()
    }


def curves_of(jobs: Iterable[TrainingJob], now: float) -> dict[object, dict[int, float]]:
    """Mean samples a second by world size, for each job id."""
    since = datetime.fromtimestamp(now, UTC) - CURVE
    rows = (
        ThroughputSample.objects.filter(
            job__in=[job.pk for job in jobs],
            at__gte=since,
            samples_per_s__isnull=False,
            world_size__isnull=False,
        )
        .values_list("job_id", "world_size")
        .annotate(rate=Avg("samples_per_s"))
        .order_by("job_id", "world_size")
    )
    curves: dict[object, dict[int, float]] = defaultdict(dict)
    for job_id, size, rate in rows:
        curves[job_id][size] = rate
    return curves


def histories_of(
    cluster: Cluster, jobs: Mapping[WorkloadKey, TrainingJob], now: float
) -> dict[WorkloadKey, History]:
    """When each job was last resized or restarted, and its resizes of the last hour."""
    since = datetime.fromtimestamp(now, UTC) - HISTORY
    resizes: dict[object, list[float]] = defaultdict(list)
    applied = (
        CommandRow.objects.filter(job__cluster=cluster, applied_at__gte=since)
        .exclude(state__in=[CommandState.REFUSED, CommandState.FAILED])
        .order_by("applied_at")
        .values_list("job_id", "applied_at")
    )
    for job_id, at in applied:
        resizes[job_id].append(at.timestamp())
    return {
        key: History(
            last_resize_at=_seconds(job.last_resize_at),
            last_restart_at=_seconds(job.last_restart_at),
            resizes=tuple(resizes.get(job.pk, ())),
            growth_wanted_since=_seconds(job.growth_wanted_since),
            short_since=_seconds(job.short_since),
        )
        for key, job in jobs.items()
    }


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None
