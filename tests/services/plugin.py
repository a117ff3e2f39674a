"""pytest option `--database-only`: the tests that touch the database, for the second engine.

Loaded with `-p tests.services.plugin` by the commands that run the suite twice.
"""

from __future__ import annotations

import pytest

# pytest-django's fixtures that open the database; a test names one, or carries the mark.
DATABASE_FIXTURES = {
    "db",
    "transactional_db",
    "django_db_reset_sequences",
    "live_server",
    "admin_client",
    "admin_user",
    "client_with_db",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database-only",
        action="store_true",
        help="only tests marked django_db or postgres, or that use a database fixture",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--database-only"):
        return
    kept = [item for item in items if touches_database(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def touches_database(item: pytest.Item) -> bool:
    """Browser, whole-process and torch tests stay out: they bring their own database."""
    if any(item.get_closest_marker(name) for name in ("browser", "e2e", "trainer", "apiserver")):
        return False
    if item.get_closest_marker("django_db") or item.get_closest_marker("postgres"):
        return True
    return bool(DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())))
