"""Writes of clusters: the lease, and what was observed. One verb a function, one transaction.

What is only observed has no audit entry: it repeats what the cluster says. Take-overs have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core import audit, events

FIELDS = ("name", "kubeconfig_path", "context", "in_cluster", "sandbox", "enabled")


@transaction.atomic
def register(name: str, values: Mapping[str, Any], *, actor: User | None) -> tuple[Cluster, bool]:
    """The cluster with this name, made or changed to these values; (row, whether it changed).

    Raises ValidationError that names the field.
    """
    row = Cluster.objects.select_for_update().filter(name=name).first()
    before = audit.values(row, FIELDS) if row else None
    row = row or Cluster(name=name)
    for field, value in values.items():
        setattr(row, field, value)
    row.full_clean()
    after = audit.values(row, FIELDS)
    if before == after:
        return row, False
    row.save()
    audit.record("change" if before else "create", row, actor=actor, before=before, after=after)
    events.publish("cluster", cluster_event(row))
    return row, True


@transaction.atomic
def acquire_lease(cluster_id: int, *, holder: str, duration: timedelta) -> int | None:
    """The new epoch if the lease was free, expired, or this holder's; None if another holds it.

    Each take-over raises the epoch by one, also by the same holder: what it began before it lost
    the lease carries the old one. Raises ValueError without a holder.
    """
    if not holder:
        raise ValueError("a lease needs a holder")
    now = timezone.now()
    row = Cluster.objects.select_for_update().get(pk=cluster_id)
    expires = row.lease_expires_at
    if row.lease_holder not in ("", holder) and expires is not None and expires > now:
        return None
    before = audit.values(row, ("lease_holder", "lease_epoch"))
    row.lease_holder, row.lease_epoch = holder, row.lease_epoch + 1
    row.lease_expires_at = now + duration
    row.save(update_fields=["lease_holder", "lease_epoch", "lease_expires_at"])
    after = audit.values(row, ("lease_holder", "lease_epoch"))
    audit.record("take_lease", row, actor=None, before=before, after=after)
    return row.lease_epoch


def renew_lease(cluster_id: int, *, holder: str, epoch: int, duration: timedelta) -> bool:
    """Extend a lease; False if it has passed to another. One statement: no window to lose it in.

    One that ran out while nobody else took it is still this holder's.
    """
    held = Cluster.objects.filter(pk=cluster_id, lease_holder=holder, lease_epoch=epoch)
    return held.update(lease_expires_at=timezone.now() + duration) == 1


def release_lease(cluster_id: int, *, holder: str, epoch: int) -> bool:
    """Give a lease back, so that a successor need not wait; False if it was no longer ours."""
    held = Cluster.objects.filter(pk=cluster_id, lease_holder=holder, lease_epoch=epoch)
    return held.update(lease_holder="", lease_expires_at=None) == 1


@transaction.atomic
def record_observed(cluster_id: int, *, at: datetime) -> None:
    """A complete observation: the cluster is known as of `at`, and any error is over."""
    Cluster.objects.filter(pk=cluster_id).update(
        last_observed_at=at, last_error="", last_error_at=None
    )
    publish_cluster(cluster_id)


@transaction.atomic
def record_unreachable(cluster_id: int, *, error: str) -> None:
    """The cluster can't be observed. What was last known keeps its age; nothing becomes 0."""
    Cluster.objects.filter(pk=cluster_id).update(
        last_error=error[:2000] or "unknown error", last_error_at=timezone.now()
    )
    publish_cluster(cluster_id)


def publish_cluster(cluster_id: int) -> None:
    row = Cluster.objects.filter(pk=cluster_id).first()
    if row is not None:
        events.publish("cluster", cluster_event(row))


def cluster_event(row: Cluster) -> dict[str, Any]:
    return {
        "name": row.name,
        "last_observed_at": row.last_observed_at,
        "last_error": row.last_error,
    }
