"""The live stream over HTTP, as uvicorn serves it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis
import uvicorn
from django.test import Client

from apps.accounts import actions
from apps.clusters import actions as clusters
from apps.core import events
from tests.rows import AT, make_cluster, make_user

pytestmark = pytest.mark.django_db(transaction=True)


class Server(uvicorn.Server):
    """uvicorn in a thread, on a free port."""

    def __init__(self) -> None:
        super().__init__(
            uvicorn.Config(
                "controlplane.asgi:application",
                host="127.0.0.1",
                port=0,
                log_level="warning",
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self.run, daemon=True)

    def install_signal_handlers(self) -> None:
        """Signals are the test runner's."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    def __enter__(self) -> str:
        self._thread.start()
        assert self._ready.wait(10)
        return f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.should_exit = True
        self._thread.join(10)


@pytest.fixture
def site(live_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(events, "publisher", events.Publisher())
    with Server() as address:
        yield address


def signed_in(username: str = "ann") -> dict[str, str]:
    client = Client()
    client.force_login(make_user(username))
    return {"concertina_session": client.cookies["concertina_session"].value}


def frames(response: httpx.Response) -> Iterator[tuple[str, Any, str | None]]:
    lines: dict[str, str] = {}
    for line in response.iter_lines():
        if not line:
            if lines:
                yield lines["event"], json.loads(lines["data"]), lines.get("id")
            lines = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            lines[name] = value


def test_a_change_reaches_the_page_and_a_reconnect_misses_nothing(site: str) -> None:
    cluster = make_cluster()
    cookies = signed_in()
    with httpx.stream("GET", f"{site}/api/v1/stream", cookies=cookies, timeout=10) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        assert "no-cache" in response.headers["cache-control"]
        coming = frames(response)
        kind, data, _ = next(coming)
        assert (kind, data["live"]) == ("hello", True)
        clusters.record_observed(cluster.pk, at=AT)
        kind, data, place = next(coming)
        assert (kind, data["name"]) == ("cluster", "east")
    clusters.record_unreachable(cluster.pk, error="away")
    headers = {"Last-Event-ID": str(place)}
    with httpx.stream(
        "GET", f"{site}/api/v1/stream", cookies=cookies, headers=headers, timeout=10
    ) as response:
        coming = frames(response)
        assert next(coming)[0] == "hello"
        kind, data, _ = next(coming)
        assert (kind, data["last_error"]) == ("cluster", "away")


def test_with_a_token(site: str) -> None:
    _, value = actions.create_token(make_user(), "script", actor=None)
    headers = {"Authorization": f"Token {value}"}
    with httpx.stream("GET", f"{site}/api/v1/stream", headers=headers, timeout=10) as response:
        assert next(frames(response))[0] == "hello"


@pytest.mark.parametrize(
    ("method", "headers", "status", "code"),
    [
        ("GET", {}, 401, "not_authenticated"),
        ("GET", {"Authorization": "Token nope"}, 401, "unknown_token"),
        ("GET", {"Authorization": "Bearer nope"}, 401, "malformed_header"),
        ("POST", {}, 405, "method_not_allowed"),
    ],
)
def test_refused(site: str, method: str, headers: dict[str, str], status: int, code: str) -> None:
    response = httpx.request(method, f"{site}/api/v1/stream", headers=headers, timeout=10)
    assert response.status_code == status
    assert response.json()["errors"][0]["code"] == code


def test_a_place_that_is_none(site: str) -> None:
    response = httpx.get(
        f"{site}/api/v1/stream", cookies=signed_in(), headers={"Last-Event-ID": "x"}, timeout=10
    )
    assert response.status_code == 400
    assert "'x' is not a stream id" in response.json()["errors"][0]["message"]
