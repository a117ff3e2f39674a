"""Writes of priority classes: one verb a function; row and audit entry in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.models import User
from apps.core import audit
from apps.priorities.choices import PreemptionPolicy, PrioritySource
from apps.priorities.models import PriorityClass

FIELDS = ("name", "value", "preemption_policy", "description")
# Kubernetes' two policies in our three. Its Never keeps the scheduler from killing pods; shrinking
# an elastic job kills none that its trainer can't do without, so reclaiming is still allowed.
FROM_KUBERNETES = {
    "Never": PreemptionPolicy.RECLAIM_ELASTIC,
    "PreemptLowerPriority": PreemptionPolicy.PREEMPT_WHOLE,
}


@transaction.atomic
def create(values: Mapping[str, Any], *, actor: User | None) -> PriorityClass:
    """A new class of our own record. Raises ValidationError that names the field."""
    row = PriorityClass(**values, source=PrioritySource.RECORD)
    row.full_clean()
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
    row.full_clean()
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


def sync_observed(classes: Iterable[Mapping[str, Any]]) -> int:
    """Take over what a cluster's PriorityClass objects say; returns how many rows changed.

    Each mapping: name, value, preemption_policy (Kubernetes' own), description. A class of the
    same name in our own record keeps its preemption policy (Kubernetes can't express it) and takes
    the value, which the scheduler there goes by. Classes are never deleted here: several clusters
    share one record. Nothing is locked or written when nothing differs.
    """
    known = {row.name: row for row in PriorityClass.objects.all()}
    wanted = {found["name"]: _observed(found) for found in classes}
    changed = [name for name, values in wanted.items() if _differs(known.get(name), values)]
    if not changed:
        return 0
    with transaction.atomic():
        for name in changed:
            _take_over(name, wanted[name])
    return len(changed)


def _observed(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "value": int(found["value"]),
        "preemption_policy": FROM_KUBERNETES[
            found.get("preemption_policy") or "PreemptLowerPriority"
        ],
        "description": found.get("description") or "",
    }


def _to_take(row: PriorityClass | None, values: dict[str, Any]) -> dict[str, Any]:
    own = row is not None and row.source == PrioritySource.RECORD
    return {"value": values["value"]} if own else values


def _differs(row: PriorityClass | None, values: dict[str, Any]) -> bool:
    return row is None or any(
        getattr(row, field) != value for field, value in _to_take(row, values).items()
    )


def _take_over(name: str, values: dict[str, Any]) -> None:
    row = PriorityClass.objects.select_for_update().filter(name=name).first()
    before = audit.values(row, FIELDS) if row else None
    taken = _to_take(row, values)
    row = row or PriorityClass(name=name, source=PrioritySource.CLUSTER)
    for field, value in taken.items():
        setattr(row, field, value)
    row.full_clean(validate_unique=False)
    row.save()
    audit.record(
        "observe",
        row,
        actor=None,
        before=before,
        after=audit.values(row, FIELDS),
        object_name=name,
    )


def refuse_foreign(row: PriorityClass) -> None:
    if row.source == PrioritySource.CLUSTER:
        raise ValidationError(
            f"Priority class {row.name!r} comes from a cluster. Change it there, with kubectl."
        )
