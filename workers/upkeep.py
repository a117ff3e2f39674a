"""The safety net and the broom: what beat asks for."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from apps.clusters.models import Cluster
from apps.decisions.choices import CommandState
from apps.decisions.models import Command as CommandRow
from workers import mailbox

log = logging.getLogger(__name__)

#: a command that nobody has moved for this long has lost its worker (its task is given again too,
#: but only after the broker's visibility time-out)
ABANDONED = timedelta(seconds=8)


def tick(now: datetime | None = None) -> None:
    """Queue a reconcile for every enabled cluster, and the commands that lost their worker."""
    from workers.tasks.loop import carry_out, reconcile

    for cluster in Cluster.objects.filter(enabled=True):
        if mailbox.want_reconcile(str(cluster.pk)):
            reconcile.delay(str(cluster.pk), cluster.lease_epoch)
    for command_id in abandoned(now or datetime.now(UTC)):
        log.warning("command %s has lost its worker: queued again", command_id)
        carry_out.delay(command_id)


def abandoned(now: datetime) -> list[str]:
    """Commands that were recorded or begun a while ago and not written."""
    rows = CommandRow.objects.filter(
        state__in=[CommandState.PENDING, CommandState.APPLYING],
        created_at__lt=now - ABANDONED,
        job__cluster__enabled=True,
    )
    return [str(pk) for pk in rows.values_list("pk", flat=True)]
