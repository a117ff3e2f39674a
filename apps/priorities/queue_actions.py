"""Writes of queues: one verb a function; row, quotas and audit entry in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core import audit
from apps.priorities import quotas
from apps.priorities.models import Queue

OWN = (
    "name", "description", "cohort", "weight", "objective", "reserve_after_s", "share_floor",
    "protect_nominal",
)  # fmt: skip
FIELDS = ("cluster", *OWN)


@transaction.atomic
def create(values: Mapping[str, Any], *, actor: User | None) -> Queue:
    """A new queue; `quotas` is a list of {resource, nominal, borrowing_limit, lending_limit}.
    Raises ValidationError that names the field."""
    row = Queue(**{name: value for name, value in values.items() if name != "quotas"})
    row.full_clean()
    row.save()
    quotas.replace(row, values.get("quotas", ()))
    audit.record("create", row, actor=actor, after=quotas.values_of(row, OWN))
    return row


@transaction.atomic
def change(row: Queue, values: Mapping[str, Any], *, actor: User | None) -> Queue:
    """Change a queue; `quotas`, if given, replace those that it has."""
    row = Queue.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=row.pk)
    quotas.refuse_moved(row, values)
    before = quotas.values_of(row, OWN)
    for field, value in values.items():
        if field != "quotas":
            setattr(row, field, value)
    row.full_clean()
    row.save()
    if "quotas" in values:
        quotas.replace(row, values["quotas"])
    after = quotas.values_of(row, OWN)
    if after != before:
        audit.record("change", row, actor=actor, before=before, after=after)
    return row


@transaction.atomic
def delete(row: Queue, *, actor: User | None) -> None:
    """Delete a queue with its quotas: jobs that name it aren't limited any more."""
    row = Queue.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=row.pk)
    audit.record("delete", row, actor=actor, before=quotas.values_of(row, OWN))
    row.delete()
