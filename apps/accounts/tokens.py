"""Secrets for tokens: made here, shown once, kept as a digest."""

from __future__ import annotations

import hashlib
import secrets

PREFIX_LENGTH = 10


def make(kind: str) -> tuple[str, str, str]:
    """(value, prefix to show, SHA-256 digest to keep) of a new token such as `ct_…`.

    256 random bits: a guess is hopeless, so the digest needs neither salt nor stretching.
    """
    value = f"{kind}_{secrets.token_urlsafe(32)}"
    return value, value[:PREFIX_LENGTH], digest(value)


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
