"""A managed job's Secret: written when missing, left alone when good, rotated when lost."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from apps.accounts import tokens
from apps.training.models import TrainingJob
from controlplane.cluster.interface import Unreachable, Verb
from controlplane.cluster.resources import SECRETS
from tests.fakes import FakeCluster
from tests.unit.workers.records import AT, make_cluster_row, make_job_row
from workers import secrets

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("broker")]


@pytest.fixture
def job() -> TrainingJob:
    return make_job_row(make_cluster_row())


def values(cluster: FakeCluster) -> dict[str, str]:
    data = cluster.get(SECRETS, "ml", "llama-concertina")["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def live_digests(job: TrainingJob) -> list[str]:
    return list(job.tokens.filter(revoked_at=None).values_list("digest", flat=True))


def test_a_missing_secret_is_written_with_a_token_that_works(
    job: TrainingJob, settings: Any
) -> None:
    settings.CONCERTINA_PUBLIC_URL = "http://control.example:8000"
    cluster = FakeCluster()
    assert secrets.ensure_job_secret(str(job.pk), cluster=cluster)
    found = values(cluster)
    assert found["CONCERTINA_URL"] == "http://control.example:8000"
    assert found["CONCERTINA_JOB"] == str(job.pk)
    assert live_digests(job) == [tokens.digest(found["CONCERTINA_TOKEN"])]
    owner = cluster.get(SECRETS, "ml", "llama-concertina")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "llama", "uid-llama")


def test_a_good_secret_is_left_alone(job: TrainingJob) -> None:
    cluster = FakeCluster()
    secrets.ensure_job_secret(str(job.pk), cluster=cluster)
    before = values(cluster)
    assert not secrets.ensure_job_secret(str(job.pk), cluster=cluster)
    assert values(cluster) == before
    assert cluster.count(Verb.APPLY) == 1


@pytest.mark.parametrize("how", ["deleted", "emptied", "damaged", "revoked", "another job's"])
def test_a_secret_that_no_longer_serves_is_rotated(job: TrainingJob, how: str) -> None:
    cluster = FakeCluster()
    secrets.ensure_job_secret(str(job.pk), cluster=cluster)
    old = values(cluster)["CONCERTINA_TOKEN"]
    stored = cluster.objects[SECRETS][("ml", "llama-concertina")]
    if how == "deleted":
        cluster.objects[SECRETS].clear()
    elif how == "emptied":
        stored["data"] = None
    elif how == "damaged":
        stored["data"]["CONCERTINA_TOKEN"] = "!!!"
    elif how == "revoked":
        job.tokens.update(revoked_at=AT)
    else:
        stored["metadata"]["annotations"][secrets.JOB_ID] = "somebody-else"
    assert secrets.ensure_job_secret(str(job.pk), cluster=cluster)
    new = values(cluster)["CONCERTINA_TOKEN"]
    assert new != old
    assert live_digests(job) == [tokens.digest(new)]


def test_a_finished_job_gets_none(job: TrainingJob) -> None:
    TrainingJob.objects.filter(pk=job.pk).update(phase="succeeded", finished_at=AT)
    cluster = FakeCluster()
    assert not secrets.ensure_job_secret(str(job.pk), cluster=cluster)
    assert cluster.calls == []


def test_a_cluster_that_does_not_answer_leaves_no_half_secret(job: TrainingJob) -> None:
    cluster = FakeCluster()
    cluster.fail(Verb.APPLY, Unreachable("east", Verb.APPLY, "secrets", "no answer."))
    with pytest.raises(Unreachable):
        secrets.ensure_job_secret(str(job.pk), cluster=cluster)
    assert secrets.ensure_job_secret(str(job.pk), cluster=cluster)  # the next try makes it whole
    assert live_digests(job) == [tokens.digest(values(cluster)["CONCERTINA_TOKEN"])]
