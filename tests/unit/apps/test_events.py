"""Events follow the commit, in order; losing them loses nothing else."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis
from django.db import transaction

from apps.clusters import actions as clusters
from apps.clusters.models import Cluster
from apps.core import events
from apps.decisions import actions as decisions
from tests.rows import AT, make_cluster, make_command, make_job


def stream(client: redis.Redis) -> list[tuple[str, dict[str, Any]]]:
    rows = client.xrange("concertina:events")
    return [(fields["type"], json.loads(fields["data"])) for _, fields in rows]


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> events.Publisher:
    fresh = events.Publisher()
    monkeypatch.setattr(events, "publisher", fresh)
    return fresh


@pytest.mark.django_db(transaction=True)
def test_after_the_commit_and_in_order(live_redis: redis.Redis, publisher: Any) -> None:
    with transaction.atomic():
        events.publish("job", {"n": 1})
        events.publish_many([("job", {"n": 2}), ("cluster", {"at": AT})])
        assert stream(live_redis) == []
    assert stream(live_redis) == [
        ("job", {"n": 1}),
        ("job", {"n": 2}),
        ("cluster", {"at": "2026-11-02T12:00:00Z"}),
    ]


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_is_not_told(live_redis: redis.Redis, publisher: Any) -> None:
    def write() -> None:
        with transaction.atomic():
            events.publish("job", {"n": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert stream(live_redis) == []


@pytest.mark.django_db(transaction=True)
def test_without_redis_the_write_stays_and_nothing_waits(settings: Any, publisher: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    cluster = make_cluster()
    began = time.monotonic()
    for _ in range(50):
        clusters.record_observed(cluster.pk, at=AT)
    assert time.monotonic() - began < 1.5
    assert Cluster.objects.get().last_observed_at == AT


def test_a_type_that_isnt_known() -> None:
    with pytest.raises(ValueError, match="'jobs' is no event type"):
        events.publish("jobs", {})


@pytest.mark.django_db(transaction=True)
def test_what_actions_tell(live_redis: redis.Redis, publisher: Any) -> None:
    command = make_command(make_job())
    decisions.begin_command(command.pk)
    decisions.mark_applied(command.pk, epoch=1, code="applied", sentence="Written.")
    clusters.record_unreachable(Cluster.objects.get().pk, error="timed out")
    told = stream(live_redis)
    assert [(kind, data.get("state")) for kind, data in told] == [
        ("command", "applying"),
        ("command", "applied"),
        ("cluster", None),
    ]
    assert told[0][1]["id"] == str(command.pk)
    assert told[2][1] == {"name": "east", "last_observed_at": None, "last_error": "timed out"}
