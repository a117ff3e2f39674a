"""What watcher and tasks hand each other through Redis: snapshots, wake-ups, one queued reconcile.

Nothing here is the record: losing Redis loses no decision. The watcher publishes again within
seconds, and the database holds the commands.

| key | holds |
|---|---|
| concertina:snapshot:<id> | the newest observation of a cluster, JSON, with epoch and version |
| concertina:epoch:<id> | the epoch that wrote it: a deposed watcher can't overwrite its successor |
| concertina:queued:<id> | a reconcile is queued: don't queue another |
| concertina:wanted:<id> | something changed since the last reconcile began |
| concertina:lock:<name> | something runs that should run once: a cluster's reconcile, a Secret |
| concertina:once:<name> | something was asked for a moment ago: don't ask again |
| concertina:next_wake:<id> | when the last plan wants to be made again (unix seconds) |
| concertina:wake (channel) | cluster ids whose watcher should look at next_wake, or wake now |
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings

FORMAT = 1
SNAPSHOT_TTL_S = 600
QUEUED_TTL_S = 6
LOCK_TTL_S = 30
WAKE_CHANNEL = "concertina:wake"

# KEYS: epoch, snapshot. ARGV: epoch, payload, ttl. Writes only if no higher epoch has written.
_PUBLISH = """
local stored = tonumber(redis.call('GET', KEYS[1]) or '0')
if stored > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
"""
# KEYS: lock. ARGV: token. Deletes the lock only if it is still ours.
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""

_client: redis.Redis | None = None


def client() -> redis.Redis:
    """This process's connection pool."""
    global _client
    if _client is None:
        _client = redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=5, socket_connect_timeout=5, health_check_interval=30
        )
    return _client


def forget() -> None:
    """Drop the pool (after a fork)."""
    global _client
    _client = None


@dataclass(frozen=True, slots=True)
class Observation:
    """One published snapshot. `snapshot` is engine JSON; `problems` are those of translate."""

    cluster_id: str
    epoch: int
    version: int
    taken_at: float
    complete: bool
    missing: dict[str, str]
    channels: list[str]
    first_event_at: float | None
    problems: list[dict[str, Any]]
    priority_classes: list[dict[str, Any]]
    snapshot: dict[str, Any]

    def to_json(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({"format": FORMAT, **fields}, separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: bytes | str) -> Observation:
        """Raises ValueError for another format: processes of two versions run side by side."""
        fields = json.loads(raw)
        found = fields.pop("format", None)
        if found != FORMAT:
            raise ValueError(f"snapshot format is {found!r}, this version reads {FORMAT}")
        return cls(**fields)


def publish(observation: Observation) -> bool:
    """Make it the newest observation; False when a higher epoch has written one."""
    cluster = observation.cluster_id
    keys = [f"concertina:epoch:{cluster}", f"concertina:snapshot:{cluster}"]
    args = [observation.epoch, observation.to_json(), SNAPSHOT_TTL_S]
    return bool(client().eval(_PUBLISH, len(keys), *keys, *args))


def newest(cluster_id: str) -> Observation | None:
    """The newest observation; None when there is none (yet, or any more)."""
    raw = client().get(f"concertina:snapshot:{cluster_id}")
    return Observation.from_json(raw) if raw is not None else None


def want_reconcile(cluster_id: str) -> bool:
    """Note that the cluster changed; True when the caller should queue a reconcile."""
    pipe = client().pipeline()
    pipe.set(f"concertina:wanted:{cluster_id}", 1, ex=SNAPSHOT_TTL_S)
    pipe.set(f"concertina:queued:{cluster_id}", 1, nx=True, ex=QUEUED_TTL_S)
    return bool(pipe.execute()[1])


def reconcile_began(cluster_id: str) -> None:
    """The queued reconcile has started: what changes from now on needs another one."""
    client().delete(f"concertina:queued:{cluster_id}")


def take_wanted(cluster_id: str) -> bool:
    """Whether something changed since this was last asked."""
    return client().getdel(f"concertina:wanted:{cluster_id}") is not None


def is_wanted(cluster_id: str) -> bool:
    return bool(client().exists(f"concertina:wanted:{cluster_id}"))


def once_in(name: str, seconds: int) -> bool:
    """Whether this is the first time in so many seconds: spares repeated requests."""
    return bool(client().set(f"concertina:once:{name}", 1, nx=True, ex=seconds))


@contextmanager
def exclusive(name: str, ttl_s: int = LOCK_TTL_S) -> Iterator[bool]:
    """Hold a named lock; yields False when another process holds it.

    It expires by itself should its holder be killed. It only spares work: correctness rests on
    the database's constraints and epochs.
    """
    key, token = f"concertina:lock:{name}", secrets.token_hex(8)
    held = bool(client().set(key, token, nx=True, ex=ttl_s))
    try:
        yield held
    finally:
        if held:
            client().eval(_RELEASE, 1, key, token)


def set_next_wake(cluster_id: str, at: float | None) -> None:
    """When the plan wants to be made again without any event; tells the watcher."""
    key = f"concertina:next_wake:{cluster_id}"
    pipe = client().pipeline()
    if at is None:
        pipe.delete(key)
    else:
        pipe.set(key, repr(at), ex=SNAPSHOT_TTL_S * 10)
    pipe.publish(WAKE_CHANNEL, str(cluster_id))
    pipe.execute()


def clear_next_wake(cluster_id: str) -> None:
    """The wake-up has happened."""
    client().delete(f"concertina:next_wake:{cluster_id}")


def wakes(stopping: Callable[[], bool]) -> Iterator[str]:
    """Cluster ids whose wake-up moved, as they come, until `stopping()` (looked at each second)."""
    subscriber = client().pubsub(ignore_subscribe_messages=True)
    try:
        subscriber.subscribe(WAKE_CHANNEL)
        while not stopping():
            message = subscriber.get_message(timeout=1.0)
            if message is not None and message["type"] == "message":
                yield message["data"].decode()
    finally:
        subscriber.close()


def next_wake(cluster_id: str) -> float | None:
    raw = client().get(f"concertina:next_wake:{cluster_id}")
    return float(raw) if raw is not None else None
