"""`GET /api/v1/stream`: Server-Sent Events for whoever is signed in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from apps.core.api.errors import error_response
from apps.core.stream.gate import NotAllowed, allow
from apps.core.stream.hub import Client, Gap, Hub, Id, TooManyClients, frame, hub, parse_id

PING_S = 15.0
# A signed-out or deactivated user's stream ends within this time.
RECHECK_S = 60.0
Check = Callable[[], Awaitable[bool]]


@csrf_exempt  # it only reads: another method is a 405, not a CSRF failure
async def stream(request: HttpRequest) -> HttpResponseBase:
    if request.method != "GET":
        return error_response(405, "method_not_allowed", "Only GET.")
    try:
        still_allowed = await sync_to_async(allow)(request)
    except NotAllowed as refused:
        response = error_response(401, refused.code, str(refused))
        response.headers["WWW-Authenticate"] = "Token"
        return response
    try:
        after = last_event_id(request)
    except ValueError as error:
        return error_response(400, "invalid_last_event_id", f"Last-Event-ID: {error}.")
    fan = hub()
    try:
        client = fan.attach()
    except TooManyClients as full:
        return error_response(503, "too_many_streams", str(full))
    return StreamingHttpResponse(
        events(fan, client, after, sync_to_async(still_allowed)),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
    )


def last_event_id(request: HttpRequest) -> Id | None:
    """From the header that browsers send when they reconnect, or `?last_event_id=`."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id")
    return parse_id(text) if text else None


async def events(
    fan: Hub, client: Client, after: Id | None, still_allowed: Check
) -> AsyncIterator[bytes]:
    """`hello`, what was missed, then what comes; a comment every 15 s keeps proxies awake."""
    clock = asyncio.get_running_loop().time
    recheck_at = clock() + RECHECK_S
    replayed: Id = (0, 0)
    try:
        # A moment for a hub that is just starting; then we say how things are.
        await fan.wait_live(1.0)
        client.told_live = fan.live
        yield hello(fan, None if after is not None else client.start)
        if after is not None:
            while not await fan.wait_live(PING_S):
                yield b": ping\n\n"
            try:
                for event_id, data in await fan.replay(after):
                    replayed = event_id
                    yield data
            except Gap as gap:
                yield frame("reset", json.dumps({"reason": str(gap)}), shown(client.start))
        while True:
            if clock() >= recheck_at:
                if not await still_allowed():
                    return
                recheck_at = clock() + RECHECK_S
            try:
                item = await asyncio.wait_for(client.queue.get(), PING_S)
            except TimeoutError:
                yield b": ping\n\n"
                continue
            if item is None:
                return
            event_id, data = item
            if event_id is None or event_id > replayed:
                yield data
    finally:
        fan.detach(client)


def hello(fan: Hub, start: Id | None) -> bytes:
    """Carries the place in the stream, so that a reconnect resumes even before a first event. None
    for a client that is about to be replayed: its place moves with each replayed event."""
    data = {
        "server_time": timezone.now().isoformat(),
        "live": fan.live,
        "reason": fan.reason,
    }
    return frame("hello", json.dumps(data), shown(start))


def shown(event_id: Id | None) -> str | None:
    return f"{event_id[0]}-{event_id[1]}" if event_id else None
