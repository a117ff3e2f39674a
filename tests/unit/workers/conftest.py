"""A Valkey of this folder's own: what the loop hands over is tested on the real thing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.valkey import ValkeyServer
from workers import mailbox


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def broker(valkey: ValkeyServer, settings: object) -> Iterator[ValkeyServer]:
    """Redis as the settings name it, empty."""
    settings.REDIS_URL = valkey.url
    mailbox.forget()
    mailbox.client().flushall()
    yield valkey
    mailbox.forget()
