"""Writes of elasticity policies: one verb a function; row, audit and event in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.models import User
from apps.core import audit
from apps.elasticity.models import ElasticityPolicy

FIELDS = (
    "name", "description", "min_replicas", "max_replicas", "replica_increment_step",
    "replica_discrete_values", "graceful_shutdown_timeout", "scaling_timeout",
    "fault_scale_down_timeout", "scale_up_snooze", "cooldown", "min_gain", "restart_budget",
    "batch_policy", "lr_rule", "schedule",
)  # fmt: skip


@transaction.atomic
def create(values: Mapping[str, Any], *, actor: User | None) -> ElasticityPolicy:
    """A new policy. Raises ValidationError that names the field."""
    row = ElasticityPolicy(**values)
    row.full_clean()
    row.save()
    audit.record("create", row, actor=actor, after=audit.values(row, FIELDS))
    return row


@transaction.atomic
def change(
    row: ElasticityPolicy, values: Mapping[str, Any], *, actor: User | None
) -> ElasticityPolicy:
    """Change a policy; jobs that use it are planned by it from the next cycle on.

    A change of name is refused while live jobs name it: their annotations would dangle.
    """
    row = ElasticityPolicy.objects.select_for_update().get(pk=row.pk)
    before = audit.values(row, FIELDS)
    if values.get("name", row.name) != row.name:
        refuse_in_use(row, "renamed")
    for field, value in values.items():
        setattr(row, field, value)
    row.full_clean()
    after = audit.values(row, FIELDS)
    if after != before:
        row.save()
        audit.record("change", row, actor=actor, before=before, after=after)
    return row


@transaction.atomic
def delete(row: ElasticityPolicy, *, actor: User | None) -> None:
    """Delete a policy that no live job uses; otherwise ValidationError names some of the jobs."""
    row = ElasticityPolicy.objects.select_for_update().get(pk=row.pk)
    refuse_in_use(row, "deleted")
    audit.record("delete", row, actor=actor, before=audit.values(row, FIELDS))
    row.delete()


def refuse_in_use(row: ElasticityPolicy, verb: str) -> None:
    jobs = [str(job) for job in row.jobs.filter(finished_at=None).order_by("name")[:4]]
    if jobs:
        shown = ", ".join(jobs[:3]) + (", …" if len(jobs) > 3 else "")
        raise ValidationError(
            f"Policy {row.name!r} can't be {verb}: live jobs use it ({shown}). "
            "Give them another policy first.",
            code="in_use",
        )
