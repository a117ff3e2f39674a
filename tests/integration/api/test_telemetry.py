"""The telemetry endpoint: job tokens, and errors that say what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from apps.training import actions
from apps.training.models import JobToken, RunAttempt, TrainingJob
from tests.rows import AT, make_job

pytestmark = pytest.mark.django_db

URL = "/api/v1/telemetry/"


def body(job: TrainingJob, **fields: Any) -> str:
    step = {"seq": 0, "at": AT.timestamp(), "kind": "step", "step": 1}
    return json.dumps(
        {
            "version": 1,
            "job": str(job.pk),
            "attempt": "a1",
            "sent_at": AT.timestamp(),
            "messages": [step],
            **fields,
        }
    )


def post(text: str | bytes, token: str | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    response = Client(enforce_csrf_checks=True, headers=headers).post(
        URL, text, content_type="application/json"
    )
    return response.status_code, response.json()


def test_taken_in_once() -> None:
    job = make_job()
    token = actions.issue_job_token(job)
    assert post(body(job), token) == (202, {"accepted": 1, "duplicates": 0, "last_sequence": 0})
    assert post(body(job), token) == (202, {"accepted": 0, "duplicates": 1, "last_sequence": 0})
    assert JobToken.objects.get().last_used_at is not None


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (None, "not_authenticated"),
        ("jt_wrong", "unknown_token"),
        ("", "malformed_header"),
        ("a b", "malformed_header"),
        ("{old}", "revoked_token"),
        ("{personal}", "unknown_token"),
    ],
)
def test_a_wrong_token(make_api: Callable[..., APIClient], token: str | None, code: str) -> None:
    job = make_job()
    values = {"old": actions.issue_job_token(job)}
    actions.issue_job_token(job)
    values["personal"] = make_api("ann").post("/api/v1/tokens/", {"name": "x"}).json()["token"]
    status, answer = post(body(job), token.format(**values) if token is not None else None)
    assert (status, answer["errors"][0]["code"]) == (401, code)
    assert not RunAttempt.objects.exists()


def test_a_session_is_no_job_token(make_api: Callable[..., APIClient]) -> None:
    job = make_job()
    ann = make_api("ann")
    assert ann.post(URL, json.loads(body(job)), format="json").status_code == 401
    token = actions.issue_job_token(job)
    ann.logout()
    ann.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    assert ann.get("/api/v1/jobs/").status_code == 401


def test_a_token_reports_for_its_job_only() -> None:
    job = make_job()
    other = make_job(job.cluster, "other")
    status, answer = post(body(other), actions.issue_job_token(job))
    assert (status, answer["errors"][0]["code"]) == (403, "wrong_job")
    assert not RunAttempt.objects.exists()


@pytest.mark.parametrize(
    ("text", "status", "field", "said"),
    [
        ("{", 400, "(body)", "must be JSON"),
        ("[]", 400, "(body)", "must be a JSON object"),
        ("[" * 100_000, 400, "(body)", "must be JSON"),
        (b"\xff\xfe", 400, "(body)", "must be JSON"),
        ('{"version": 2}', 400, "version", "this side reads version 1"),
        (" " * (4 * 1024 * 1024 + 1), 413, None, "more than 4194304 bytes"),
    ],
)
def test_bad_bodies(text: str | bytes, status: int, field: str | None, said: str) -> None:
    token = actions.issue_job_token(make_job())
    got, answer = post(text, token)
    assert (got, answer["errors"][0]["field"]) == (status, field)
    assert said in answer["errors"][0]["message"]
