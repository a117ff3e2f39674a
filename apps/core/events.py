"""What the pages see live: events into a Redis stream, after the transaction that caused them.

An event that can't be published is lost and counted; the write it tells of is not. Pages fetch
again when the stream says `reset`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from functools import partial
from typing import Any

import redis
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from prometheus_client import Counter

log = logging.getLogger(__name__)

# The event types of the stream; `hello`, `reset` and `status` come from the hub itself.
TYPES = frozenset(
    {"capacity", "decision", "command", "job", "job_event", "sample", "recovery", "cluster"}
)
# After a failure nothing is tried for this long: a dead Redis must not slow every write.
PAUSE_S = 2.0
TIMEOUT_S = 1.0

published = Counter("concertina_events_published", "Events put into the stream", ["type"])
lost = Counter("concertina_events_lost", "Events that could not be published")


class Publisher:
    """One process's connection to the stream."""

    def __init__(self) -> None:
        self._client: redis.Redis | None = None
        self._url = ""
        self._paused_until = 0.0
        self._lock = threading.Lock()

    def client(self) -> redis.Redis:
        with self._lock:
            if self._client is None or self._url != settings.REDIS_URL:
                self._url = settings.REDIS_URL
                self._paused_until = 0.0
                self._client = redis.Redis.from_url(
                    self._url,
                    socket_timeout=TIMEOUT_S,
                    socket_connect_timeout=TIMEOUT_S,
                    retry=None,
                )
            return self._client

    def send(self, events: list[tuple[str, str]]) -> None:
        """XADD each (type, JSON). Never raises for Redis' sake."""
        client = self.client()
        if time.monotonic() < self._paused_until:
            lost.inc(len(events))
            return
        try:
            with client.pipeline(transaction=False) as pipe:
                for kind, data in events:
                    pipe.xadd(
                        settings.CONCERTINA_EVENT_STREAM,
                        {"type": kind, "data": data},
                        maxlen=settings.CONCERTINA_EVENT_STREAM_LENGTH,
                        approximate=True,
                    )
                pipe.execute()
        except (redis.RedisError, OSError) as error:
            self._paused_until = time.monotonic() + PAUSE_S
            lost.inc(len(events))
            log.warning("%d events were not published: %s", len(events), error)
            return
        for kind, _ in events:
            published.labels(kind).inc()


publisher = Publisher()


def publish(event_type: str, payload: dict[str, Any]) -> None:
    """Publish one event when the current transaction commits (at once where there is none)."""
    publish_many([(event_type, payload)])


def publish_many(events: list[tuple[str, dict[str, Any]]]) -> None:
    """The same for several, in this order, in one round trip."""
    for kind, _ in events:
        if kind not in TYPES:
            raise ValueError(f"{kind!r} is no event type; known: {', '.join(sorted(TYPES))}.")
    encoded = [(kind, json.dumps(data, cls=DjangoJSONEncoder)) for kind, data in events]
    if encoded:
        transaction.on_commit(partial(publisher.send, encoded), robust=True)
