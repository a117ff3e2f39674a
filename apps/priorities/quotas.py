"""Queues and cohorts with their quotas, which are rows of their own: written and read together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError

from apps.core import audit
from apps.priorities.models import Cohort, CohortQuota, Queue, QueueQuota

Owner = Queue | Cohort


def values_of(row: Owner, fields: Sequence[str]) -> dict[str, Any]:
    """A queue or cohort with its quotas as JSON, for the audit trail."""
    limits = limits_of(row)
    quotas = {quota.resource: {name: getattr(quota, name) for name in limits}
              for quota in row.quotas.all()}  # fmt: skip
    return {"cluster": row.cluster.name, **audit.values(row, tuple(fields)), "quotas": quotas}


def limits_of(row: Owner) -> tuple[str, ...]:
    """The numbers of each of its quotas."""
    if isinstance(row, Queue):
        return ("nominal", "borrowing_limit", "lending_limit")
    return ("nominal",)


def replace(row: Owner, given: Iterable[Mapping[str, Any]]) -> None:
    """These quotas instead of those that it has. Raises ValidationError that names
    `quotas.<resource>.<field>`; call it within the transaction that writes the row."""
    errors: dict[str, list[str]] = {}
    made: dict[str, QueueQuota | CohortQuota] = {}
    for values in given:
        quota = _quota(row, values)
        if quota.resource in made:
            errors[f"quotas.{quota.resource}"] = ["is given twice: give each resource once."]
        made[quota.resource] = quota
        try:
            quota.full_clean(exclude=["queue", "cohort"], validate_constraints=False)
        except ValidationError as error:
            for name, said in error.message_dict.items():
                errors[f"quotas.{quota.resource}.{name}"] = said
    if errors:
        raise ValidationError(errors)
    row.quotas.all().delete()
    for quota in made.values():
        quota.save()


def _quota(row: Owner, values: Mapping[str, Any]) -> QueueQuota | CohortQuota:
    given = {name: values.get(name) for name in ("resource", *limits_of(row))}
    if isinstance(row, Queue):
        return QueueQuota(queue=row, **given)
    return CohortQuota(cohort=row, **given)


def refuse_moved(row: Owner, values: Mapping[str, Any]) -> None:
    """Jobs and queues refer to it by its name on its cluster: under another, it is another."""
    for field in ("cluster", "name"):
        if field in values and values[field] != getattr(row, field):
            raise ValidationError(
                {field: f"can't be changed: create another {row._meta.verbose_name} instead."}
            )
