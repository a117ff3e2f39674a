"""The environment is read in one place, and what can't be used is refused by name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane.settings.environment import ROOT, Environment, database


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("sqlite:///.run/db.sqlite3", ("sqlite3", str(ROOT / ".run/db.sqlite3"))),
        ("sqlite:////var/lib/c/db.sqlite3", ("sqlite3", "/var/lib/c/db.sqlite3")),
        ("postgres://u:p%40ss@db:5433/main", ("postgresql", "main")),
        ("postgresql://u@db/main?sslmode=require", ("postgresql", "main")),
    ],
)
def test_database_urls(url: str, want: tuple[str, str]) -> None:
    found = database(url)
    assert (found["ENGINE"].rsplit(".", 1)[1], found["NAME"]) == want


def test_a_database_url_is_taken_apart() -> None:
    found = database("postgres://u:p%40ss@db:5433/main?sslmode=require")
    assert {k: found[k] for k in ("USER", "PASSWORD", "HOST", "PORT", "OPTIONS")} == {
        "USER": "u",
        "PASSWORD": "p@ss",
        "HOST": "db",
        "PORT": "5433",
        "OPTIONS": {"sslmode": "require"},
    }


def test_sqlite_takes_its_write_lock_at_once() -> None:
    options = database("sqlite:///x.sqlite3")["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("mysql://db/main", "scheme 'mysql'"),
        ("sqlite://", "names no file"),
        ("nonsense", "scheme ''"),
    ],
)
def test_a_database_url_that_cant_be_used(url: str, want: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=want):
        database(url)


@pytest.mark.parametrize(
    ("text", "want"),
    [("1", True), ("yes", True), ("ON", True), ("0", False), ("no", False), ("", False)],
)
def test_flags(text: str, want: bool) -> None:
    assert Environment({"X": text}).flag("X", default=not want) is want


@pytest.mark.parametrize(
    ("method", "want"),
    [("flag", "X='maybe' is not a yes or no"), ("integer", "X='maybe' is not a whole number")],
)
def test_values_that_cant_be_used(method: str, want: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=want):
        getattr(Environment({"X": "maybe"}), method)("X", 0)


PRODUCTION = {
    "CONCERTINA_SECRET_KEY": "k" * 50,
    "CONCERTINA_ALLOWED_HOSTS": "concertina.example",
    "DATABASE_URL": "postgres://u@db/main",
    "REDIS_URL": "redis://redis:6379/0",
}


def load_production(**environment: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import controlplane.settings.production as s; "
        "print(s.SESSION_COOKIE_SECURE, s.SECURE_HSTS_SECONDS, s.DEBUG)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.parametrize("missing", sorted(PRODUCTION))
def test_production_refuses_to_start_without(missing: str) -> None:
    done = load_production(**{k: v for k, v in PRODUCTION.items() if k != missing})
    assert done.returncode != 0
    assert f"{missing} is not set." in done.stderr


def test_production_is_secure_unless_told_otherwise() -> None:
    assert load_production(**PRODUCTION).stdout.split() == ["True", "31536000", "False"]
    plain = load_production(**PRODUCTION, CONCERTINA_HTTPS="0")
    assert plain.stdout.split() == ["False", "0", "False"]


def test_a_short_secret_is_refused() -> None:
    done = load_production(**{**PRODUCTION, "CONCERTINA_SECRET_KEY": "short"})
    assert "needs at least 32" in done.stderr
