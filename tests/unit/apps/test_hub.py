"""The live stream's hub: fan-out, replay, gaps, slow clients, Redis coming and going."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis

from apps.core.stream import hub as hubs
from apps.core.stream.hub import Gap, Hub, TooManyClients, parse_id
from apps.core.stream.views import events
from tests.services.valkey import ValkeyServer

STREAM = "concertina:events"


@pytest.mark.parametrize(("text", "want"), [("5-3", (5, 3)), ("5", (5, 0)), ("0-0", (0, 0))])
def test_ids(text: str, want: tuple[int, int]) -> None:
    assert parse_id(text) == want


@pytest.mark.parametrize("text", ["", "-", "x", "5-x", "-5-3", "٣-1", "5-3-1"])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="is not a stream id"):
        parse_id(text)


def add(client: redis.Redis, n: int, **options: Any) -> str:
    return client.xadd(STREAM, {"type": "job", "data": json.dumps({"n": n})}, **options)


@pytest.fixture
async def hub(live_redis: redis.Redis, valkey: ValkeyServer) -> AsyncIterator[Hub]:
    made = Hub(valkey.url, STREAM)
    yield made
    await made.close()


async def always() -> bool:
    return True


class Reader:
    """One browser: parses what the stream sends."""

    def __init__(self, hub: Hub, after: str | None = None) -> None:
        client = hub.attach()
        self.client = client
        self.frames = events(hub, client, parse_id(after) if after else None, always)

    async def next(self) -> tuple[str, Any, str | None]:
        """(event, data, id) of the next event; comments are skipped."""
        while True:
            raw = (await asyncio.wait_for(anext(self.frames), 10)).decode()
            lines = dict(line.split(": ", 1) for line in raw.strip().split("\n") if line[0] != ":")
            if lines:
                return lines["event"], json.loads(lines["data"]), lines.get("id")

    async def until(self, kind: str) -> tuple[str, Any, str | None]:
        while (found := await self.next())[0] != kind:
            pass
        return found

    async def close(self) -> None:
        await self.frames.aclose()


async def eventually(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)  # poll interval of a condition with a deadline


async def test_hello_then_what_comes(hub: Hub, live_redis: redis.Redis) -> None:
    before = add(live_redis, 1)
    reader = Reader(hub)
    kind, data, place = await reader.next()
    assert (kind, data["live"], place) == ("hello", True, before)
    added = add(live_redis, 2)
    assert await reader.next() == ("job", {"n": 2}, added)
    await reader.close()
    assert not hub._clients


async def test_everyone_gets_everything_once(hub: Hub, live_redis: redis.Redis) -> None:
    readers = [Reader(hub) for _ in range(20)]
    for reader in readers:
        assert (await reader.next())[0] == "hello"
    ids = [add(live_redis, n) for n in range(100)]
    for reader in readers:
        assert [(await reader.next())[2] for _ in ids] == ids


async def test_a_reconnect_is_replayed_without_a_gap_or_a_double(
    hub: Hub, live_redis: redis.Redis
) -> None:
    ids = [add(live_redis, n) for n in range(10)]
    reader = Reader(hub, after=ids[3])
    assert (await reader.next())[2] is None  # hello: the place moves with each replayed event
    ids += [add(live_redis, n) for n in range(10, 15)]
    assert [(await reader.next())[2] for _ in range(11)] == ids[4:]


@pytest.mark.parametrize(
    ("after", "said"),
    [("1-0", "no longer kept"), ("99999999999999-0", "begun anew")],
)
async def test_a_gap_is_said(hub: Hub, live_redis: redis.Redis, after: str, said: str) -> None:
    for n in range(20):
        add(live_redis, n, maxlen=5, approximate=False)
    reader = Reader(hub, after=after)
    assert (await reader.next())[0] == "hello"
    kind, data, _ = await reader.next()
    assert kind == "reset"
    assert said in data["reason"]
    added = add(live_redis, 99)
    assert (await reader.next())[2] == added


async def test_a_long_gap_is_not_replayed(
    hub: Hub, live_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "MAX_REPLAY", 3)
    ids = [add(live_redis, n) for n in range(6)]
    assert len(await hub.replay(parse_id(ids[2]))) == 3
    with pytest.raises(Gap, match="more than 3"):
        await hub.replay(parse_id(ids[0]))


async def test_an_untrimmed_stream_is_replayed_from_before_its_start(
    hub: Hub, live_redis: redis.Redis
) -> None:
    ids = [add(live_redis, n) for n in range(3)]
    assert [row[0] for row in await hub.replay((1, 0))] == [parse_id(i) for i in ids]


async def test_a_slow_client_is_dropped_and_the_others_are_not(
    hub: Hub, live_redis: redis.Redis
) -> None:
    slow, quick = Reader(hub), Reader(hub)
    await slow.next()
    await quick.next()
    got = []
    for n in range(hubs.QUEUE_LENGTH + 50):
        add(live_redis, n)
        got.append((await quick.next())[1]["n"])
    assert got == list(range(hubs.QUEUE_LENGTH + 50))
    assert slow.client.dropped
    with pytest.raises(StopAsyncIteration):
        await slow.next()
    assert not quick.client.dropped
    await eventually(lambda: slow.client not in hub._clients)


async def test_the_number_of_clients_is_bounded(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "MAX_CLIENTS", 2)
    hub.attach()
    hub.attach()
    with pytest.raises(TooManyClients):
        hub.attach()


async def test_a_stream_ends_when_it_is_no_longer_allowed(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.core.stream.views.RECHECK_S", 0.0)

    async def never() -> bool:
        return False

    frames = events(hub, hub.attach(), None, never)
    assert b"event: hello" in await anext(frames)
    with pytest.raises(StopAsyncIteration):
        await anext(frames)
    assert not hub._clients


async def test_without_redis_the_page_is_told_and_nothing_is_lost_when_it_is_back() -> None:
    with ValkeyServer(persist=True) as server:
        hub = Hub(server.url, STREAM)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            first = add(client, 1)
            reader = Reader(hub)
            assert (await reader.next())[2] == first
            server.restart()
            _, data, _ = await reader.until("status")
            assert (data["live"], "Redis can't be reached" in data["reason"]) == (False, True)
            second = add(client, 2)
            assert await reader.until("status") == ("status", {"live": True, "reason": ""}, None)
            assert await reader.next() == ("job", {"n": 2}, second)
        await hub.close()


async def test_a_stream_that_was_lost_is_a_reset() -> None:
    with ValkeyServer() as server:  # keeps nothing over a restart
        hub = Hub(server.url, STREAM)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            add(client, 1)
            reader = Reader(hub)
            await reader.next()
            server.restart()
            assert (await reader.until("reset"))[1] == {"reason": "events were lost"}
            added = add(client, 2)
            assert (await reader.until("job"))[2] == added
        await hub.close()


async def test_a_first_visitor_without_redis() -> None:
    hub = Hub("redis://127.0.0.1:1/0", STREAM)
    reader = Reader(hub)
    kind, data, place = await reader.next()
    assert (kind, data["live"], place) == ("hello", False, None)
    assert "Redis can't be reached" in data["reason"]
    await hub.close()
