"""Parts of a plan as the JSON that its row keeps, and what is read from it again.

Thousands of pods may wait for one reason, so what explains them is kept once: `pending` rows name
an entry of `explanations` by its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from controlplane.engine import decisions as engine
from controlplane.engine.reasons import Reason
from controlplane.engine.snapshot import DemandHistory

Row = dict[str, Any]


def moment(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None


def reason_to_json(reason: Reason) -> Row:
    return {
        "code": str(reason.code),
        "sentence": reason.sentence,
        "numbers": dict(reason.numbers),
    }


def reasons_to_json(reasons: Iterable[Reason]) -> list[Row]:
    return [reason_to_json(reason) for reason in reasons]


def rejected_to_json(rejected: Iterable[engine.Rejection]) -> list[Row]:
    return [{"candidate": lost.candidate, **reason_to_json(lost.reason)} for lost in rejected]


def pending_to_json(demands: Sequence[engine.PendingDemand]) -> tuple[list[Row], list[Row]]:
    """Rows of what waits, and the explanations that they name."""
    explanations: list[Row] = []
    positions: dict[tuple[Any, ...], int] = {}
    rows = []
    for demand in demands:
        row = _pending_row(demand)
        if demand.rejected or demand.unblock:
            likeness = (_likeness(demand.rejected), _reasons_likeness(demand.unblock))
            if likeness not in positions:
                positions[likeness] = len(explanations)
                explanations.append(
                    {
                        "rejected": rejected_to_json(demand.rejected),
                        "unblock": reasons_to_json(demand.unblock),
                    }
                )
            row["explanation"] = positions[likeness]
        rows.append(row)
    return rows, explanations


def _pending_row(demand: engine.PendingDemand) -> Row:
    since = moment(demand.since)
    row: Row = {
        "workload": str(demand.workload_or_pod),
        "priority": demand.priority,
        "pods": demand.pods,
        "requests": dict(demand.requests),
        "since": since.isoformat().replace("+00:00", "Z") if since else None,
        "reason": reason_to_json(demand.reason) if demand.reason else None,
    }
    history = demand.history
    if history != DemandHistory():
        row["history"] = [history.fits_since, history.refusals, history.refused_at]
    return row


def _likeness(rejected: Iterable[engine.Rejection]) -> tuple[Any, ...]:
    return tuple((one.candidate, one.reason.code, one.reason.sentence) for one in rejected)


def _reasons_likeness(reasons: Iterable[Reason]) -> tuple[Any, ...]:
    return tuple((one.code, one.sentence) for one in reasons)


def explained(pending: Iterable[Row], explanations: Sequence[Row], *, rejected: bool) -> list[Row]:
    """Rows of what waits as the API shows them; `rejected` null where they are left out."""
    shown = []
    for row in pending:
        at = row.get("explanation")
        why = explanations[at] if at is not None else {"rejected": [], "unblock": []}
        shown.append(
            {
                **{name: row[name] for name in row if name not in ("explanation", "history")},
                "rejected": why["rejected"] if rejected else None,
                "rejected_count": len(why["rejected"]),
                "unblock": why["unblock"],
            }
        )
    return shown


def histories(pending: Iterable[Row]) -> dict[str, DemandHistory]:
    """What the next cycle must know of each demand, by name. Of several with one name (a job's
    minimum and what is above it) the longest wait and the most refusals count."""
    found: dict[str, DemandHistory] = {}
    for row in pending:
        if "history" not in row:
            continue
        here = DemandHistory(*row["history"])
        there = found.get(row["workload"], DemandHistory())
        found[row["workload"]] = DemandHistory(
            fits_since=min(_known(here.fits_since, there.fits_since), default=None),
            refusals=max(here.refusals, there.refusals),
            refused_at=max(_known(here.refused_at, there.refused_at), default=None),
        )
    return found


def _known(*values: float | None) -> list[float]:
    return [value for value in values if value is not None]


def reservations_to_json(reservations: Iterable[engine.Reservation]) -> list[Row]:
    return [
        {
            "demand": kept.demand,
            "priority": kept.priority,
            "nodes": {node: dict(amounts) for node, amounts in kept.nodes.items()},
        }
        for kept in reservations
    ]


def notices_to_json(notices: Iterable[engine.Notice]) -> list[Row]:
    return [{"subject": one.subject, **reason_to_json(one.reason)} for one in notices]


def same_picture(before: Mapping[str, list[Row]], after: Mapping[str, list[Row]]) -> bool:
    """Whether the same demand waits for the same reason, for the same ones places are kept, and
    the same notices stand; numbers in them may have moved."""
    return _identity(before) == _identity(after)


def _identity(picture: Mapping[str, list[Row]]) -> tuple[Any, ...]:
    return (
        [
            (row["workload"], row["priority"], row["pods"], (row["reason"] or {}).get("code"))
            for row in picture["pending"]
        ],
        [(row["demand"], row["priority"]) for row in picture["reservations"]],
        [(row["subject"], row["code"]) for row in picture["notices"]],
    )
