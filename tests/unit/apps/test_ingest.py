"""Trainers' reports: what they change, that they may come again, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.exceptions import ValidationError

from apps.core.api.errors import Refused
from apps.training.ingest import take_in
from apps.training.models import RecoveryEvent, RunAttempt, ThroughputSample, TrainingJob
from tests.rows import AT, after, make_attempt, make_job

pytestmark = pytest.mark.django_db


def envelope(job: TrainingJob, *messages: dict[str, Any], **fields: Any) -> bytes:
    numbered = [
        {"seq": index, "at": AT.timestamp() + index, **message}
        for index, message in enumerate(messages)
    ]
    return json.dumps(
        {
            "version": 1,
            "job": str(job.pk),
            "attempt": "a1",
            "sent_at": AT.timestamp() + 10,
            "messages": numbered,
            **fields,
        }
    ).encode()


def step(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "step",
        "step": number,
        "total_steps": 100,
        "world_size": 3,
        "quorum_id": 7,
        "loss": 2.5,
        "samples_per_s": 48.0,
        "global_batch_size": 96,
        **fields,
    }


def take(job: TrainingJob, *messages: dict[str, Any], now: float = 10, **fields: Any) -> dict:
    return take_in(job, envelope(job, *messages, **fields), after(now))


def test_steps_become_samples_and_move_the_job() -> None:
    job = make_job()
    got = take(job, step(1, loss=3.0), step(2, loss=2.5, tokens_per_s=900.5, learning_rate=0.1))
    assert got == {"accepted": 2, "duplicates": 0, "last_sequence": 1}
    job.refresh_from_db()
    assert (job.committed_steps, job.total_steps, job.loss, job.throughput) == (2, 100, 2.5, 48.0)
    assert (job.productive, job.quorum_id, job.global_batch_size) == (3, 7, 96)
    assert job.last_report_at == after(1)
    first, second = ThroughputSample.objects.order_by("sequence")
    assert (first.step, first.loss, first.tokens_per_s) == (1, 3.0, None)
    assert (second.at, second.tokens_per_s, second.learning_rate) == (after(1), 900.5, 0.1)
    attempt = RunAttempt.objects.get()
    assert (attempt.attempt, attempt.last_sequence) == ("a1", 1)
    assert (attempt.first_step, attempt.last_step, attempt.world_size) == (1, 2, 3)


AGAIN: list[tuple[str, list[int], dict[str, int]]] = [
    # name, seq numbers of a second envelope after 0 and 1; the answer
    ("the same", [0, 1], {"accepted": 0, "duplicates": 2, "last_sequence": 1}),
    ("overlapping", [1, 2], {"accepted": 1, "duplicates": 1, "last_sequence": 2}),
    ("the next", [2, 3], {"accepted": 2, "duplicates": 0, "last_sequence": 3}),
    ("with a gap (dropped by the trainer)", [9], {"accepted": 1, "duplicates": 0,
                                                  "last_sequence": 9}),
    ("empty", [], {"accepted": 0, "duplicates": 0, "last_sequence": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "numbers", "want"), AGAIN, ids=[a[0] for a in AGAIN])
def test_sent_again(name: str, numbers: list[int], want: dict[str, int]) -> None:
    job = make_job()
    take(job, step(1), step(2))
    assert take(job, *(step(n + 1, seq=n) for n in numbers)) == want
    assert ThroughputSample.objects.count() == 2 + want["accepted"]


def test_a_recovery() -> None:
    job = make_job()
    stages = [
        {"stage": "detect", "start_s": 0.0, "duration_s": 0.1},
        {"stage": "rendezvous", "start_s": 0.1, "duration_s": 0.2},
    ]
    take(
        job,
        {"kind": "recovery", "cause": "replica_lost", "started_at": AT.timestamp(),
         "duration_s": 0.3, "stages": stages, "quorum_id": 8, "step": 41, "lost": ["llama-2"]},
    )  # fmt: skip
    event = RecoveryEvent.objects.get()
    assert (event.kind, event.started_at, event.duration_s) == ("replica_lost", AT, 0.3)
    assert (event.stages, event.lost, event.joined, event.step) == (stages, ["llama-2"], [], 41)
    assert event.attempt.attempt == "a1"


@pytest.mark.parametrize(
    ("message", "kind", "pause"),
    [
        ({"from_replicas": 2, "to_replicas": 4, "joined": ["c", "d"], "pause_s": 0.2}, "scale_up",
         0.2),
        ({"from_replicas": 4, "to_replicas": 2, "left": ["c", "d"]}, "scale_down", None),
    ],
)  # fmt: skip
def test_a_resize_that_took_effect(message: dict[str, Any], kind: str, pause: float | None) -> None:
    job = make_job()
    take(job, {"kind": "scale", "quorum_id": 9, **message})
    event = RecoveryEvent.objects.get()
    assert (event.kind, event.duration_s) == (kind, pause)
    job.refresh_from_db()
    assert (job.productive, job.quorum_id) == (message["to_replicas"], 9)


PRODUCTIVE: list[tuple[dict[str, Any], int | None]] = [
    ({"kind": "membership", "quorum_id": 1, "world_size": 3, "members": ["a", "b", "c"]}, 3),
    ({"kind": "membership", "quorum_id": 2, "world_size": 0, "members": [], "state": "waiting"}, 0),
    ({"kind": "heartbeat", "state": "waiting"}, 0),
    ({"kind": "heartbeat", "state": "stopped"}, 0),
    ({"kind": "heartbeat", "state": "training", "step": 5}, 2),  # as it was
    ({"kind": "checkpoint", "step": 5, "complete": True}, 2),
    ({"kind": "straggler", "replica": "a", "z_score": 4.0}, 2),
    ({"kind": "log_match", "rule": "nan"}, 2),
]


@pytest.mark.parametrize(("message", "want"), PRODUCTIVE)
def test_productive(message: dict[str, Any], want: int) -> None:
    job = make_job(productive=2)
    assert take(job, message)["accepted"] == 1
    job.refresh_from_db()
    assert job.productive == want


def test_a_stopped_trainer_ends_its_attempt() -> None:
    job = make_job()
    take(job, {"kind": "heartbeat", "state": "stopped"})
    assert RunAttempt.objects.get().ended_at == AT


def test_a_new_attempt_is_a_restart() -> None:
    job = make_job()
    take(job, step(5))
    job.refresh_from_db()
    assert job.last_restart_at is None  # the first start is none
    take(job, step(1), attempt="a2", now=20)
    job.refresh_from_db()
    assert job.last_restart_at == after(20)
    assert RunAttempt.objects.get(attempt="a1").ended_at == after(20)


def test_what_an_old_attempt_had_in_its_buffer_comes_late() -> None:
    job = make_job()
    take(job, step(5))
    take(job, step(2, loss=1.0), attempt="a2", now=20)
    take(job, step(5), step(6, loss=9.0), now=30)
    job.refresh_from_db()
    assert (job.committed_steps, job.loss) == (2, 1.0)
    assert ThroughputSample.objects.count() == 3


def test_late_reports_of_a_finished_job_are_kept_and_change_no_counts() -> None:
    job = make_job(phase="succeeded", productive=0)
    assert take(job, step(100))["accepted"] == 1
    job.refresh_from_db()
    assert (job.productive, job.phase) == (0, "succeeded")


@pytest.mark.parametrize(
    ("sent_at", "want"),
    [(10, 0), (-40, 0), (-3600, 3610), (7200, -7190)],
)
def test_a_trainers_clock_that_is_off(sent_at: float, want: float) -> None:
    """`want`: by how much its times are moved."""
    job = make_job()
    take(job, step(1), sent_at=AT.timestamp() + sent_at)
    assert ThroughputSample.objects.get().at == AT + timedelta(seconds=want)
    job.refresh_from_db()
    assert job.last_report_at <= after(10)


REFUSED: list[tuple[str, dict[str, Any] | bytes, str]] = [
    ("not JSON", b"{", "(body)"),
    ("not an object", b"[]", "(body)"),
    ("unknown version", {"version": 2}, "version"),
    ("no version", {"version": None}, "version"),
    ("no attempt", {"attempt": ""}, "attempt"),
    ("messages missing", {"messages": None}, "messages"),
    ("unknown kind", {"messages": [{"seq": 0, "at": 1.0, "kind": "dance"}]}, "messages[0].kind"),
    ("no step", {"messages": [{"seq": 0, "at": 1.0, "kind": "step"}]}, "messages[0].step"),
    ("a negative seq", {"messages": [{"seq": -1, "at": 1.0, "kind": "step", "step": 1}]},
     "messages[0].seq"),
    ("NaN", b'{"version": 1, "job": "JOB", "attempt": "a", "sent_at": 1, "messages": '
     b'[{"seq": 0, "at": 1, "kind": "step", "step": 1, "loss": NaN}]}', "messages[0].loss"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "path"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(name: str, fields: dict[str, Any] | bytes, path: str) -> None:
    job = make_job()
    if isinstance(fields, bytes):
        body = fields.replace(b"JOB", str(job.pk).encode())
    else:
        body = envelope(job, **fields)
    with pytest.raises(ValidationError) as refused:
        take_in(job, body)
    assert list(refused.value.detail) == [path]
    assert not RunAttempt.objects.exists()


def test_one_wrong_message_refuses_the_whole_envelope() -> None:
    job = make_job()
    with pytest.raises(ValidationError):
        take(job, step(1), {"kind": "step"})
    assert not ThroughputSample.objects.exists()
    job.refresh_from_db()
    assert job.committed_steps is None


def test_an_envelope_for_another_job() -> None:
    job = make_job()
    other = make_job(job.cluster, "other")
    with pytest.raises(Refused, match="This token is for job") as refused:
        take_in(job, envelope(other, step(1)))
    assert refused.value.status_code == 403
    assert not ThroughputSample.objects.exists()


def test_fields_of_the_future_are_ignored() -> None:
    job = make_job()
    assert take(job, step(1, mood="fine"), colour="blue")["accepted"] == 1


def test_a_thousand_steps_cost_few_queries(django_assert_max_num_queries: Any) -> None:
    job = make_job()
    make_attempt(job)
    with django_assert_max_num_queries(32):  # SQLite takes 999 values at a time
        take(job, *(step(n) for n in range(1000)))
    assert ThroughputSample.objects.count() == 1000


def test_times_are_utc() -> None:
    job = make_job()
    take(job, step(1))
    assert ThroughputSample.objects.get().at.tzinfo == UTC
    assert isinstance(ThroughputSample.objects.get().at, datetime)
