"""metadata.managedFields: who owns which field."""

from __future__ import annotations

from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object


def record_change(
    kind: KindInfo,
    old: Object | None,
    new: Object,
    manager: str,
    subresource: str | None,
    now: float,
) -> None:
    """Placeholder until apply lands."""
