"""The one place that reads the process environment. Everything else reads Django's settings.

A value that can't be used stops the process at start with `ImproperlyConfigured`, which names the
variable, the value and what would be accepted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

ROOT = Path(__file__).resolve().parents[2]

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off", ""}

# A writer waits this long for SQLite's one write lock before "database is locked".
SQLITE_TIMEOUT_SECONDS = 20


class Environment:
    """Typed look-ups in a mapping of strings (the process environment, or a test's own)."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = os.environ if values is None else values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default).strip() or default

    def required(self, name: str, remedy: str) -> str:
        value = self.text(name)
        if not value:
            raise ImproperlyConfigured(f"{name} is not set. {remedy}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        raw = self._values.get(name)
        if raw is None:
            return default
        value = raw.strip().lower()
        if value in TRUE:
            return True
        if value in FALSE:
            return False
        raise ImproperlyConfigured(f"{name}={raw!r} is not a yes or no. Use 1 or 0.")

    def integer(self, name: str, default: int) -> int:
        raw = self.text(name)
        if not raw:
            return default
        try:
            return int(raw)
        except ValueError:
            raise ImproperlyConfigured(f"{name}={raw!r} is not a whole number.") from None

    def names(self, name: str, default: str = "") -> list[str]:
        """Comma-separated names, empty ones dropped."""
        return [part.strip() for part in self.text(name, default).split(",") if part.strip()]

    def folder(self, name: str, default: str) -> Path:
        """A path; relative ones count from the repository's root."""
        path = Path(self.text(name, default)).expanduser()
        return path if path.is_absolute() else ROOT / path


def database(url: str) -> dict[str, Any]:
    """Django's DATABASES entry for a URL.

    `sqlite:///relative/path`, `sqlite:////absolute/path`, `postgres://user:password@host:port/name`
    (also `postgresql://`; query parameters become connection options, e.g. `?sslmode=require`).
    """
    parts = urlsplit(url)
    if parts.scheme in {"sqlite", "sqlite3"}:
        return _sqlite(unquote(parts.path))
    if parts.scheme in {"postgres", "postgresql", "pgsql"}:
        options: dict[str, Any] = dict(parse_qsl(parts.query))
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path.lstrip("/")) or "concertina",
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(parts.hostname or ""),
            "PORT": str(parts.port or ""),
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": True,
            "OPTIONS": options,
        }
    raise ImproperlyConfigured(
        f"DATABASE_URL has the scheme {parts.scheme!r}. Use sqlite:///path or postgres://…"
    )


def _sqlite(path: str) -> dict[str, Any]:
    name = path.removeprefix("/")
    if not name:
        raise ImproperlyConfigured("DATABASE_URL names no file. Use sqlite:///.run/db.sqlite3")
    file = name if name == ":memory:" else str(ROOT / name)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": file,
        "OPTIONS": {
            # DEFERRED takes the write lock too late and fails at once under contention
            # (838k lock errors in 5 s with 4 writers; IMMEDIATE: none).
            "transaction_mode": "IMMEDIATE",
            "timeout": SQLITE_TIMEOUT_SECONDS,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
            "PRAGMA cache_size=-16000; PRAGMA temp_store=MEMORY;",
        },
    }
