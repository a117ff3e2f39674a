"""Writes of priority classes: one verb a function; row, audit entry and event in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.models import User
from apps.core import audit
from apps.priorities.choices import HIGHEST_USER_PRIORITY, PreemptionPolicy, PrioritySource
from apps.priorities.models import PriorityClass

FIELDS = ("name", "value", "preemption_policy", "description")
# Kubernetes' two policies in our three: PreemptLowerPriority may preempt whole workloads.
FROM_KUBERNETES = {
    "Never": PreemptionPolicy.NEVER,
    "PreemptLowerPriority": PreemptionPolicy.PREEMPT_WHOLE,
}


@transaction.atomic
def create(values: Mapping[str, Any], *, actor: User | None) -> PriorityClass:
    """A new class of our own record. Raises ValidationError that names the field."""
    row = PriorityClass(**values, source=PrioritySource.RECORD)
    check(row)
    row.save()
    audit.record("create", row, actor=actor, after=audit.values(row, FIELDS), object_name=row.name)
    return row


@transaction.atomic
def change(row: PriorityClass, values: Mapping[str, Any], *, actor: User | None) -> PriorityClass:
    """Change a class. One that is observed on a cluster is changed there: ValidationError."""
    row = PriorityClass.objects.select_for_update().get(pk=row.pk)
    refuse_foreign(row)
    before = audit.values(row, FIELDS)
    for field, value in values.items():
        setattr(row, field, value)
    check(row)
    after = audit.values(row, FIELDS)
    if after != before:
        row.save()
        audit.record("change", row, actor=actor, before=before, after=after, object_name=row.name)
    return row


@transaction.atomic
def delete(row: PriorityClass, *, actor: User | None) -> None:
    row = PriorityClass.objects.select_for_update().get(pk=row.pk)
    refuse_foreign(row)
    audit.record("delete", row, actor=actor, before=audit.values(row, FIELDS), object_name=row.name)
    row.delete()


@transaction.atomic
def sync_observed(classes: Iterable[Mapping[str, Any]]) -> int:
    """Take over what a cluster's PriorityClass objects say; returns how many rows changed.

    Each mapping: name, value, preemption_policy (Kubernetes' or ours), description. A class of the
    same name in our own record keeps its preemption policy (Kubernetes can't express it) and takes
    the value, which the scheduler there goes by. Classes are never deleted here: several clusters
    share one record.
    """
    changed = 0
    known = {row.name: row for row in PriorityClass.objects.all()}
    for found in classes:
        name, value = found["name"], int(found["value"])
        policy = str(found.get("preemption_policy") or "")
        policy = FROM_KUBERNETES.get(policy, policy) or PreemptionPolicy.PREEMPT_WHOLE
        wanted = {
            "value": value,
            "preemption_policy": policy,
            "description": found.get("description") or "",
        }
        row = known.get(name)
        if row is None:
            row = PriorityClass(name=name, source=PrioritySource.CLUSTER)
            before = None
        else:
            before = audit.values(row, FIELDS)
            if row.source == PrioritySource.RECORD:
                wanted = {"value": value}
        for field, new in wanted.items():
            setattr(row, field, new)
        after = audit.values(row, FIELDS)
        if before == after:
            continue
        row.full_clean(validate_unique=False)
        row.save()
        audit.record("observe", row, actor=None, before=before, after=after, object_name=name)
        changed += 1
    return changed


def check(row: PriorityClass) -> None:
    """Raises ValidationError on the fields that are wrong."""
    if row.value is not None and row.value > HIGHEST_USER_PRIORITY:
        raise ValidationError(
            {
                "value": f"{row.value} is above {HIGHEST_USER_PRIORITY}, which Kubernetes keeps "
                "for its own classes. Use a smaller value."
            }
        )
    row.full_clean()


def refuse_foreign(row: PriorityClass) -> None:
    if row.source == PrioritySource.CLUSTER:
        raise ValidationError(
            f"Priority class {row.name!r} comes from a cluster. Change it there, with kubectl."
        )
