"""Kubernetes timestamps (RFC 3339) as unix seconds."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache


@lru_cache(maxsize=8192)
def _parse(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def unix(text: object, default: float = 0.0) -> float:
    """Seconds since 1970; `default` for an absent or unreadable time."""
    if not isinstance(text, str) or not text:
        return default
    try:
        return _parse(text)
    except ValueError:
        return default
