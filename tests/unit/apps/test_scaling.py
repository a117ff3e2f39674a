"""What is kept of a job's measurements: throughput by replicas, the cost of a resize, service."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.training import actions, scaling, sync
from apps.training.models import RunAttempt, ScalingPoint, ThroughputSample, TrainingJob
from tests import builders
from tests.rows import AT, after, make_cluster, make_job
from tests.unit.apps.test_ingest import step, take

pytestmark = pytest.mark.django_db


def measured(job: TrainingJob, now: datetime = AT) -> tuple[dict[int, float], dict[int, float]]:
    rates, deviations = scaling.curves([job.pk], now).get(job.pk, ({}, {}))
    return dict(rates), {n: round(sd, 6) for n, sd in deviations.items()}


def member(world_size: int, names: list[str], **fields: Any) -> dict[str, Any]:
    return {
        "kind": "membership", "quorum_id": 1, "world_size": world_size, "members": names, **fields,
    }  # fmt: skip


def at(size: int, rate: float | None) -> dict[str, Any]:
    return step(1, world_size=size, samples_per_s=rate)


@pytest.mark.parametrize(
    ("messages", "rates", "deviations"),
    [
        ([], {}, {}),
        ([at(2, 40.0)], {2: 40.0}, {}),
        # a deviation takes three
        ([at(2, 40.0), at(2, 60.0)], {2: 50.0}, {}),
        ([at(2, 40.0), at(2, 50.0), at(2, 60.0)], {2: 50.0}, {2: round(8.164966 / 50, 6)}),
        ([at(2, 40.0), at(4, 70.0)], {2: 40.0, 4: 70.0}, {}),
        # nothing was measured
        ([at(2, None), at(2, 0.0), {**step(1), "world_size": None}], {}, {}),
        # two ranks a replica
        ([member(8, ["a", "b", "c", "d"]), at(8, 90.0)], {4: 90.0}, {}),
        ([member(8, ["a", "b", "c", "d"]), at(8, 90.0), at(4, 50.0)], {2: 50.0, 4: 90.0}, {}),
        # a list that doesn't fit the world says nothing
        ([member(8, ["a", "b", "c"]), at(8, 90.0)], {8: 90.0}, {}),
        ([member(8, []), at(8, 90.0)], {8: 90.0}, {}),
    ],
)
def test_throughput_by_replicas(
    messages: list[dict[str, Any]], rates: dict[int, float], deviations: dict[int, float]
) -> None:
    job = make_job()
    take(job, *messages)
    assert measured(job) == (rates, deviations)


def test_what_comes_in_parts_counts_as_what_comes_at_once() -> None:
    job, other = make_job(), make_job(make_cluster("west"))
    rates = [40.0, 50.0, 60.0, 55.0]
    take(job, *(at(2, rate) for rate in rates))
    for n, rate in enumerate(rates):
        take(other, {**at(2, rate), "seq": n})
        take(other, {**at(2, rate), "seq": n})  # sent again
    assert measured(job)[0] == {2: 51.25}
    assert measured(other) == (pytest.approx({2: 51.25}), measured(job)[1])


def test_a_job_that_changes_is_followed_and_what_is_old_isnt_used() -> None:
    job = make_job()
    take(job, *(at(2, 100.0) for _ in range(400)))
    take(job, *({**at(2, 50.0), "seq": 1000 + n} for n in range(600)))
    point = ScalingPoint.objects.get()
    assert point.samples == scaling.MEMORY
    assert 50.0 < point.samples_per_s < 55.0
    assert measured(job, AT + timedelta(days=6))[0] == {2: point.samples_per_s}
    assert measured(job, AT + timedelta(days=8)) == ({}, {})


def test_productive_counts_replicas_not_ranks() -> None:
    job = make_job()
    take(job, member(16, ["a", "b"]), step(1, world_size=16))
    job.refresh_from_db()
    assert job.productive == 2
    assert RunAttempt.objects.get().ranks_per_replica == 8
    sample = ThroughputSample.objects.get()
    assert (sample.world_size, sample.replicas) == (16, 2)
    # the next envelope knows it still; whoever waits has no world
    take(job, {**member(24, []), "seq": 5}, now=20)
    job.refresh_from_db()
    assert job.productive == 3
    take(job, {**member(0, ["a"], state="waiting"), "seq": 6}, now=30)
    job.refresh_from_db()
    assert job.productive == 0
    assert RunAttempt.objects.get().ranks_per_replica == 8


def resize(pause: float | None, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "scale", "quorum_id": 9, "from_replicas": 2, "to_replicas": 4, "pause_s": pause,
        **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "want"),
    [
        ([step(1)], None),
        ([resize(None)], None),
        ([resize(4.0)], 4.0),
        ([resize(4.0), resize(None), resize(10.0)], 7.0),
        ([resize(4.0), resize(6.0, from_replicas=4, to_replicas=2), resize(60.0)], 6.0),
        # the last five
        ([resize(float(n)) for n in (100, 100, 100, 5, 4, 3, 2, 1)], 3.0),
        # a recovery is no resize
        ([{"kind": "recovery", "cause": "replica_lost", "started_at": AT.timestamp(),
           "duration_s": 30.0, "stages": []}], None),
    ],
)  # fmt: skip
def test_the_cost_of_a_resize(messages: list[dict[str, Any]], want: float | None) -> None:
    job = make_job()
    take(job, *messages)
    job.refresh_from_db()
    assert job.resize_cost_s == want


def test_service_is_counted_while_replicas_run() -> None:
    cluster = make_cluster()
    workload = builders.make_workload(granted=4)
    begin = datetime.fromtimestamp(builders.NOW, UTC)

    def seen(seconds: float, running: int, **fields: Any) -> TrainingJob:
        pods = builders.make_replicas(workload, [f"n{i}" for i in range(running)])
        snapshot = builders.make_snapshot(workloads=[replace(workload, **fields)], pods=pods)
        actions.sync_jobs(cluster, snapshot, at=begin + timedelta(seconds=seconds))
        return TrainingJob.objects.get()

    def attained(job: TrainingJob, seconds: float) -> float:
        return sync.attained(job, begin + timedelta(seconds=seconds))

    assert attained(seen(0, 0), 0) == 0.0
    job = seen(10, 4)
    assert (job.attained, attained(job, 10), attained(job, 20)) == (0.0, 0.0, 4 * 8 * 10)
    # written only when the rate changes
    assert seen(20, 4).attained == 0.0
    job = seen(30, 2)
    assert (job.attained, attained(job, 40)) == (4 * 8 * 20, 4 * 8 * 20 + 2 * 8 * 10)
    job = seen(50, 2, finished=True)
    assert job.attained == 4 * 8 * 20 + 2 * 8 * 20
    assert attained(job, 1000) == job.attained
    assert seen(60, 2, finished=True).attained == job.attained


def test_service_of_a_job_that_is_deleted() -> None:
    cluster = make_cluster()
    job = make_job(cluster, running=3, attained=100.0, attained_at=AT)
    actions.sync_jobs(cluster, builders.make_snapshot(), at=after(10))
    job.refresh_from_db()
    assert (job.phase, job.attained) == ("deleted", 100.0 + 3 * 8 * 10)
