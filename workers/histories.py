"""What the engine must know of the past: of jobs from their commands, of nodes from their faults,
of demand of higher priority from the recorded weeks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from django.core.cache import caches
from django.db.models import F

from apps.clusters.models import Cluster
from apps.decisions.choices import CommandState
from apps.decisions.models import Command as CommandRow
from apps.training import faults, inflow
from apps.training.models import TrainingJob
from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.snapshot import History, Move, NodeHistory
from controlplane.engine.types import WorkloadKey

#: resizes are remembered this long: the window of a policy's restart budget
HISTORY = timedelta(hours=1)
#: failed resizes this long: well beyond the longest back-off
FAILURES = timedelta(hours=24)
#: states of a command that was written and changed the job's size
WRITTEN = (
    CommandState.APPLIED,
    CommandState.DONE,
    CommandState.TIMED_OUT,
    CommandState.SUPERSEDED,
)
FAILED = (CommandState.FAILED, CommandState.TIMED_OUT)


def histories_of(
    cluster: Cluster, jobs: Mapping[WorkloadKey, TrainingJob], now: float
) -> dict[WorkloadKey, History]:
    """When each job was last resized or restarted, its resizes of the last hour, and those that
    failed since the last that succeeded."""
    at = datetime.fromtimestamp(now, UTC)
    moves = _moves(cluster, at - HISTORY)
    failed = _failed_resizes(cluster, at - FAILURES)
    return {
        key: History(
            last_resize_at=_seconds(job.last_resize_at),
            last_restart_at=_seconds(job.last_restart_at),
            resizes=tuple(move.at for move in moves.get(job.pk, ())),
            growth_wanted_since=_seconds(job.growth_wanted_since),
            short_since=_seconds(job.short_since),
            moves=tuple(moves.get(job.pk, ())),
            failed_resizes=tuple(failed.get(job.pk, ())),
        )
        for key, job in jobs.items()
    }


def _moves(cluster: Cluster, since: datetime) -> dict[object, list[Move]]:
    rows = (
        CommandRow.objects.filter(job__cluster=cluster, applied_at__gte=since, state__in=WRITTEN)
        .exclude(from_replicas=F("to_replicas"))
        .order_by("applied_at", "id")
        .values_list("job_id", "applied_at", "from_replicas", "to_replicas")
    )
    found: dict[object, list[Move]] = defaultdict(list)
    for job_id, at, before, after in rows:
        found[job_id].append(Move(at.timestamp(), before, after))
    return found


def _failed_resizes(cluster: Cluster, since: datetime) -> dict[object, list[float]]:
    rows = (
        CommandRow.objects.filter(
            job__cluster=cluster, finished_at__gte=since, state__in=(*FAILED, CommandState.DONE)
        )
        .order_by("finished_at", "id")
        .values_list("job_id", "finished_at", "state")
    )
    found: dict[object, list[float]] = defaultdict(list)
    for job_id, at, state in rows:
        if state == CommandState.DONE:
            found[job_id].clear()
        else:
            found[job_id].append(at.timestamp())
    return found


def node_histories(cluster: Cluster, policy: ClusterPolicy, now: float) -> dict[str, NodeHistory]:
    """The faults of each node that can still make it a repeat offender."""
    seconds = policy.offender_window_s + policy.offender_rest_s
    return faults.histories(cluster, datetime.fromtimestamp(now - seconds, UTC))


def inflow_of(cluster: Cluster, policy: ClusterPolicy, now: float) -> dict[str, tuple[float, ...]]:
    """What the recorded weeks forecast by hour of the week, where the policy asks for it; worked
    out once an hour."""
    quantile = policy.forecast_quantile
    if quantile is None:
        return {}
    at = datetime.fromtimestamp(now, UTC)
    key = f"inflow:{cluster.pk}:{quantile!r}:{at:%Y%m%d%H}"
    return caches["local"].get_or_set(
        key, lambda: inflow.expected_inflow(cluster, quantile, at), timeout=3600
    )


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None
