"""Writes of a cluster's settings: one verb a function; row and audit entry in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.clusters.models import Cluster, ClusterSettings
from apps.core import audit

FIELDS = (
    "topology_levels", "spares", "reserves", "forecast_quantile", "forecast_horizon_s",
    "max_disruption_ratio", "terminating_timeout_s", "offender_faults", "offender_window_s",
    "offender_rest_s", "departure_notice_s", "bind_timeout_s",
)  # fmt: skip


@transaction.atomic
def create(values: Mapping[str, Any], *, actor: User | None) -> ClusterSettings:
    """The settings of a cluster that has the defaults so far. Raises ValidationError that names
    the field."""
    row = ClusterSettings(**values)
    row.full_clean()
    row.save()
    audit.record("create", row, actor=actor, after=audit.values(row, FIELDS))
    return row


@transaction.atomic
def change(
    row: ClusterSettings, values: Mapping[str, Any], *, actor: User | None
) -> ClusterSettings:
    """Change some settings; the cluster is planned by them from the next cycle on."""
    row = ClusterSettings.objects.select_for_update().get(pk=row.pk)
    before = audit.values(row, FIELDS)
    for field, value in values.items():
        setattr(row, field, value)
    row.full_clean()
    after = audit.values(row, FIELDS)
    if after != before:
        row.save()
        audit.record("change", row, actor=actor, before=before, after=after)
    return row


@transaction.atomic
def delete(row: ClusterSettings, *, actor: User | None) -> None:
    """Back to the defaults."""
    row = ClusterSettings.objects.select_for_update().get(pk=row.pk)
    audit.record("delete", row, actor=actor, before=audit.values(row, FIELDS))
    row.delete()


@transaction.atomic
def put(cluster: Cluster, values: Mapping[str, Any], *, actor: User | None) -> ClusterSettings:
    """Change some settings of a cluster, whether it has a row yet or not."""
    # two first writes at once would both find no row
    Cluster.objects.select_for_update().get(pk=cluster.pk)
    row = ClusterSettings.objects.filter(cluster=cluster).first()
    if row is None:
        return create({"cluster": cluster, **values}, actor=actor)
    return change(row, values, actor=actor)
