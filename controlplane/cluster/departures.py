"""Which nodes have been announced to leave: the signs of the clouds and of Kubernetes itself.

The signs are listed in `names`, each with its source. What follows from a departure (from when on
nothing new goes there) is the engine's: `nodes_health.avoided`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from controlplane.cluster import names
from controlplane.cluster.interface import Manifest, metadata
from controlplane.engine.snapshot import Departure

#: digits of a unix time that is one (until the year 5138)
_MOST_DIGITS = 11


def departure_of(node: Manifest) -> Departure | None:
    """The earliest departure that a Node object announces; None if there is none. One without a
    time may come at any moment, and so may one whose time can't be read: `source` shows it."""
    return min(_signs(node), key=_when, default=None)


def _when(departure: Departure) -> float:
    return float("-inf") if departure.at is None else departure.at


def _signs(node: Manifest) -> Iterator[Departure]:
    meta = metadata(node)
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    taints = {
        str(taint.get("key")): str(taint.get("value") or "")
        for taint in (node.get("spec") or {}).get("taints") or ()
    }
    if meta.get("deletionTimestamp"):
        yield Departure(names.DRAIN, None, "its deletion")
    yield from _found(names.DEPARTURE_TAINTS, taints, "taint")
    yield from _found(names.DEPARTURE_LABELS, labels, "label")
    if names.MAINTENANCE_AT in notes:
        text = str(notes[names.MAINTENANCE_AT])
        yield _at(f"annotation {names.MAINTENANCE_AT}", text, _instant(text), "RFC 3339")
    if names.GKE_MAINTENANCE_TIME in labels:
        text = str(labels[names.GKE_MAINTENANCE_TIME])
        whole = text.isdecimal() and len(text) <= _MOST_DIGITS
        at = float(text) if whole else None
        yield _at(f"label {names.GKE_MAINTENANCE_TIME}", text, at, "unix")


def _found(
    signs: tuple[names.Sign, ...], there: Mapping[str, str], what: str
) -> Iterator[Departure]:
    for sign in signs:
        value = there.get(sign.key)
        if value is not None and sign.value in ("", value):
            yield Departure(sign.kind, None, f"{what} {sign.key}")


def _at(source: str, text: str, at: float | None, form: str) -> Departure:
    if at is None:
        return Departure(names.MAINTENANCE, None, f"{source} ({text[:40]!r} is no {form} time)")
    return Departure(names.MAINTENANCE, at, source)


def _instant(text: str) -> float | None:
    """Unix seconds of an RFC 3339 time, which says its offset from UTC; None for anything else."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return at.timestamp() if at.tzinfo is not None else None
