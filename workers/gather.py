"""What the engine needs besides the cluster: policies, commands in flight, reports and history.

Each function reads one thing of the record; `inputs` puts them into the observed snapshot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from apps.clusters.models import Cluster
from apps.clusters.selectors import cluster_policy
from apps.decisions.selectors import demand_histories, live_commands
from apps.elasticity.selectors import policies
from apps.priorities import selectors as priorities
from apps.training import scaling, sync
from apps.training.models import TrainingJob
from controlplane.engine.policy import PolicySet
from controlplane.engine.snapshot import ClusterSnapshot, InFlight, TrainerReport
from controlplane.engine.types import WorkloadKey
from workers.histories import histories_of, inflow_of, node_histories


def inputs(snapshot: ClusterSnapshot, cluster: Cluster, now: float) -> ClusterSnapshot:
    """The snapshot with everything that only our record knows."""
    jobs = {key_of(job): job for job in live_jobs(cluster)}
    policy = cluster_policy(cluster)
    return dataclasses.replace(
        snapshot,
        reports=reports_of(jobs, now),
        in_flight=in_flight_of(cluster),
        history=histories_of(cluster, jobs, now),
        node_history=node_histories(cluster, policy, now),
        demand_history=demand_histories(cluster),
        inflow=inflow_of(cluster, policy, now),
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
    """What trainers last said, and what was measured of their jobs; a job whose trainer never
    reported has no entry."""
    reporting = {key: job for key, job in jobs.items() if job.last_report_at is not None}
    at = datetime.fromtimestamp(now, UTC)
    curves = scaling.curves((job.pk for job in reporting.values()), at)
    nothing: tuple[scaling.Curve, scaling.Curve] = ({}, {})
    return {
        key: TrainerReport(
            productive=job.productive,
            quorum_id=job.quorum_id,
            committed_steps=job.committed_steps,
            total_steps=job.total_steps,
            throughput=curves.get(job.pk, nothing)[0],
            resize_cost_s=job.resize_cost_s,
            reported_at=job.last_report_at.timestamp(),
            deviation=curves.get(job.pk, nothing)[1],
            samples_per_step=job.global_batch_size,
            attained=sync.attained(job, at),
        )
        for key, job in reporting.items()
    }
