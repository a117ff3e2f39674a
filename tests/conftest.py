"""What tests of every folder may use. The database is SQLite unless DATABASE_URL names another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.services.valkey import ValkeyServer


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    """A Valkey of this test run's own, started for the first test that asks."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def live_redis(valkey: ValkeyServer, settings: Any) -> Iterator[redis.Redis]:
    """Redis as the settings name it, empty."""
    settings.REDIS_URL = valkey.url
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def make_api(db: None) -> Callable[..., Any]:
    """make_api() is a client that isn't signed in; make_api("ann", staff=True, permissions=[…])
    one that is, by session, with CSRF checked as in a browser."""
    from django.core.cache import caches
    from rest_framework.test import APIClient

    from tests.rows import make_user

    caches["default"].clear()

    def make(username: str | None = None, **fields: Any) -> APIClient:
        client = APIClient()
        if username is not None:
            client.force_login(make_user(username, **fields))
        return client

    return make
