"""The audit trail: one call an action, inside the action's transaction."""

from __future__ import annotations

import json
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils import timezone

from apps.core.models import AuditEntry

# The actor of what the control plane does by itself.
SYSTEM = "concertina"


def record(
    verb: str,
    obj: models.Model,
    *,
    actor: Any | None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    object_name: str = "",
) -> AuditEntry:
    """Write one entry. `actor` is a user, or None for the control plane itself.

    Call it within the transaction that changes `obj`: both are kept, or neither. After a delete,
    call it before the row goes (the key is needed).
    """
    return AuditEntry.objects.create(
        at=timezone.now(),
        actor=actor,
        actor_name=actor.get_username() if actor is not None else SYSTEM,
        verb=verb,
        object_type=obj._meta.label_lower,
        object_id=str(obj.pk),
        object_name=object_name or str(obj),
        before=before,
        after=after,
    )


def values(obj: models.Model, fields: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """The named fields as JSON, for `before` and `after`."""
    row = {field: getattr(obj, field) for field in fields}
    return json.loads(json.dumps(row, cls=DjangoJSONEncoder))
