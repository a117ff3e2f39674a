"""What reports carry beyond progress: measurements, and events that interrupted nothing."""

from __future__ import annotations

from typing import Any

import pytest

from apps.training import happenings
from apps.training.models import JobEvent, RecoveryEvent, RunAttempt, ThroughputSample
from tests.rows import AT, after, make_job
from tests.unit.apps.test_ingest import step, take

pytestmark = pytest.mark.django_db

MEASURED = {
    "mfu": 0.41, "grad_norm": 1.5, "data_wait_ms": 2.0, "tokens": 4096, "bytes_moved": 1 << 40,
    "phases_ms": {"forward_backward": 80.0, "reduce": 20.5},
}  # fmt: skip


def test_what_a_step_measured_is_kept_and_what_it_did_not_is_unknown() -> None:
    job = make_job()
    take(job, step(1, **MEASURED), step(2))
    first, second = ThroughputSample.objects.order_by("sequence").values(*MEASURED)
    assert first == MEASURED
    assert second == dict.fromkeys(MEASURED)


RANKS: list[tuple[str, dict[str, Any], int, int | None]] = [
    # name, membership; productive replicas, ranks a replica
    ("as told", {"world_size": 8, "members": ["a", "b"], "ranks_per_replica": 4}, 2, 4),
    ("told, and one member isn't named", {"world_size": 8, "members": ["a"],
                                          "ranks_per_replica": 4}, 2, 4),
    ("not told: from the members", {"world_size": 8, "members": ["a", "b"]}, 2, 4),
    ("told, and doesn't fit", {"world_size": 8, "members": ["a", "b"],
                               "ranks_per_replica": 3}, 2, 4),
    ("neither fits", {"world_size": 7, "members": ["a", "b"]}, 7, None),
    ("more than the world", {"world_size": 2, "members": ["a"], "ranks_per_replica": 4}, 1, 2),
    ("nobody trains", {"world_size": 0, "members": ["a"], "ranks_per_replica": 4,
                       "state": "waiting"}, 0, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said", "productive", "ranks"), RANKS, ids=[r[0] for r in RANKS])
def test_replicas_of_several_ranks(
    name: str, said: dict[str, Any], productive: int, ranks: int | None
) -> None:
    job = make_job()
    take(job, {"kind": "membership", "quorum_id": 1, **said})
    job.refresh_from_db()
    assert (job.productive, RunAttempt.objects.get().ranks_per_replica) == (productive, ranks)


def test_a_resize_keeps_what_its_pause_was_spent_on() -> None:
    stages = [{"stage": "rendezvous", "start_s": 0.0, "duration_s": 0.2}]
    take(
        make_job(),
        {"kind": "scale", "quorum_id": 9, "from_replicas": 2, "to_replicas": 3, "pause_s": 0.2,
         "bytes_moved": 77, "stages": stages},
        {"kind": "recovery", "cause": "replica_lost", "started_at": AT.timestamp(),
         "duration_s": 0.3, "stages": stages, "source": "llama-0", "bytes_moved": 5},
    )  # fmt: skip
    assert list(
        RecoveryEvent.objects.order_by("sequence").values_list("stages", "source", "bytes_moved")
    ) == [(stages, "", 77), (stages, "llama-0", 5)]


HAPPENED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"kind": "log_match", "rule": "loss", "replica": "a", "line": "loss 31", "value": 31.0,
         "reason": "above"},
        {"kind": "log_match", "code": "above", "replica": "a", "detail": "loss 31",
         "sentence": "Log rule loss matched in replica a (above).", "numbers": {"value": 31.0}},
    ),
    (
        {"kind": "log_match", "rule": "loss", "missing": True, "reason": "missing_start"},
        {"kind": "log_match", "code": "missing_start", "replica": "", "detail": "",
         "sentence": "Log rule loss did not find what it expects (missing start).", "numbers": {}},
    ),
    (
        {"kind": "log_match", "rule": "cuda", "line": "CUDA error"},
        {"kind": "log_match", "code": "", "replica": "", "detail": "CUDA error",
         "sentence": "Log rule cuda matched.", "numbers": {}},
    ),
    (
        {"kind": "straggler", "replica": "b", "z_score": 6.5, "work_ms": 90.0},
        {"kind": "straggler", "code": "", "replica": "b", "detail": "",
         "sentence": "Replica b is slower than its peers.",
         "numbers": {"z_score": 6.5, "work_ms": 90.0}},
    ),
    (
        {"kind": "straggler", "replica": "b", "z_score": 0.5, "cleared": True},
        {"kind": "straggler_cleared", "code": "", "replica": "b", "detail": "",
         "sentence": "Replica b is no longer slower than its peers.", "numbers": {"z_score": 0.5}},
    ),
    (
        {"kind": "checkpoint", "step": 5, "complete": False, "detail": "disk full"},
        {"kind": "checkpoint_failed", "code": "", "replica": "", "detail": "disk full",
         "sentence": "The checkpoint of step 5 could not be written.", "numbers": {"step": 5}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "want"), HAPPENED)
def test_what_happened(message: dict[str, Any], want: dict[str, Any]) -> None:
    job = make_job()
    take(job, message)
    take(job, message)  # again: dropped
    assert JobEvent.objects.values(*want).get() == want
    event = JobEvent.objects.get()
    assert (event.job, event.at, event.attempt.attempt) == (job, AT, "a1")


def test_a_whole_checkpoint_is_no_event() -> None:
    take(make_job(), {"kind": "checkpoint", "step": 5, "complete": True})
    assert not JobEvent.objects.exists()


def test_a_rule_that_matches_every_line_fills_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(happenings, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(happenings, "MOST_KEPT", 5)
    job = make_job()
    for first in (0, 10):
        matches = [{"kind": "log_match", "rule": "x", "seq": first + n, "at": AT.timestamp() + first
                    + n} for n in range(4)]  # fmt: skip
        assert take(job, *matches)["accepted"] == 4
    kept = JobEvent.objects.order_by("at").values_list("at", flat=True)
    assert list(kept) == [after(n) for n in (2, 3, 11, 12, 13)]
