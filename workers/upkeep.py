"""The safety net and the broom: what beat asks for."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from apps.clusters.models import CapacitySample, Cluster
from apps.decisions.choices import CommandState
from apps.decisions.models import Command as CommandRow
from apps.decisions.models import Plan
from apps.training import inflow, scaling
from apps.training.models import (
    InflowHour,
    JobEvent,
    NodeFault,
    ScalingPoint,
    ThroughputSample,
)
from controlplane.engine.cluster_policy import MOST_SECONDS
from workers import mailbox

log = logging.getLogger(__name__)

#: a command that nobody has moved for this long has lost its worker (its task is given again too,
#: but only after the broker's visibility time-out)
ABANDONED = timedelta(seconds=8)

#: and is given to another at most this often, seconds
RETRY_S = 10

KEEP_SAMPLES = inflow.SAMPLES_KEPT
#: as long as they may make a node a repeat offender: the longest window and the longest rest
KEEP_FAULTS = timedelta(seconds=2 * MOST_SECONDS)
#: plans without commands are only of interest while somebody may ask why nothing happened
KEEP_PLANS = timedelta(days=2)
KEEP_DECIDED = timedelta(days=90)
STEP = 500


def tick(now: datetime | None = None) -> None:
    """Queue a reconcile for every enabled cluster, and the commands that lost their worker."""
    from workers.tasks.loop import carry_out, reconcile

    for cluster in Cluster.objects.filter(enabled=True):
        if mailbox.want_reconcile(str(cluster.pk)):
            reconcile.delay(str(cluster.pk), cluster.lease_epoch)
    for command_id in abandoned(now or datetime.now(UTC)):
        if not mailbox.once_in(f"carry_out:{command_id}", RETRY_S):
            continue
        log.warning("command %s has lost its worker: queued again", command_id)
        carry_out.delay(command_id)


def prune(now: datetime | None = None) -> dict[str, int]:
    """Delete what is too old to be shown; how many rows of each went.

    In small steps: one long delete would hold SQLite's only write lock.
    """
    at = now or datetime.now(UTC)
    with_commands = CommandRow.objects.values("decision__plan_id")
    old = {
        "capacity": CapacitySample.objects.filter(at__lt=at - KEEP_SAMPLES),
        "throughput": ThroughputSample.objects.filter(at__lt=at - KEEP_SAMPLES),
        "events": JobEvent.objects.filter(at__lt=at - KEEP_DECIDED),
        "scaling": ScalingPoint.objects.filter(updated_at__lt=at - scaling.KEPT),
        "faults": NodeFault.objects.filter(at__lt=at - KEEP_FAULTS),
        "inflow": InflowHour.objects.filter(hour__lt=at - inflow.KEPT),
        "plans": Plan.objects.filter(last_seen_at__lt=at - KEEP_PLANS).exclude(
            pk__in=with_commands
        ),
        "decided": Plan.objects.filter(last_seen_at__lt=at - KEEP_DECIDED),
    }
    return {name: _delete(rows) for name, rows in old.items()}


def record_inflow(now: datetime | None = None) -> int:
    """Take the capacity samples of whole hours into what forecasts are made from; how many hours
    of how many resources were new."""
    at = now or datetime.now(UTC)
    return sum(inflow.record_inflow(cluster, at) for cluster in Cluster.objects.all())


def _delete(rows: QuerySet[Any]) -> int:
    """Delete the rows of a query, some at a time."""
    gone = 0
    while True:
        keys = list(rows.order_by("pk").values_list("pk", flat=True)[:STEP])
        if not keys:
            return gone
        rows.model.objects.filter(pk__in=keys).delete()
        gone += len(keys)


def abandoned(now: datetime) -> list[str]:
    """Commands that were recorded or begun a while ago and not written."""
    rows = CommandRow.objects.filter(
        state__in=[CommandState.PENDING, CommandState.APPLYING],
        created_at__lt=now - ABANDONED,
        job__cluster__enabled=True,
    )
    return [str(pk) for pk in rows.values_list("pk", flat=True)]
