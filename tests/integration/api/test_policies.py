"""Priority classes and elasticity policies over the API: who may, what is refused, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.core.models import AuditEntry
from apps.elasticity.models import ElasticityPolicy
from apps.priorities import actions as priorities
from apps.priorities.models import PriorityClass
from tests.rows import make_class, make_job, make_policy_row

pytestmark = pytest.mark.django_db

Api = Callable[..., APIClient]
POLICIES, CLASSES = "/api/v1/elasticity-policies/", "/api/v1/priority-classes/"
MAY = {
    "staff": True,
    "permissions": [
        *(f"elasticity.{verb}_elasticitypolicy" for verb in ("add", "change", "delete")),
        *(f"priorities.{verb}_priorityclass" for verb in ("add", "change", "delete")),
    ],
}
GIVEN = {"name": "steady", "min_replicas": 1, "max_replicas": 4}
NIGHTS = {
    "name": "nights",
    "from": "20:00",
    "until": "06:00",
    "timezone": "Europe/Berlin",
    "max_replicas": 16,
}


def test_a_policys_life(make_api: Api) -> None:
    ann = make_api("ann", **MAY)
    made = ann.post(POLICIES, {**GIVEN, "replica_discrete_values": [1, 2, 4]})
    assert made.status_code == 201
    body = made.json()
    assert (body["valid_sizes"], body["job_count"], body["cooldown"]) == ([1, 2, 4], 0, 60.0)
    url = f"{POLICIES}{body['id']}/"
    assert ann.patch(url, {"cooldown": 5}).json()["cooldown"] == 5.0
    assert ann.put(url, {**GIVEN, "replica_discrete_values": None}).json()["valid_sizes"] == [
        1, 2, 3, 4,
    ]  # fmt: skip
    assert ann.delete(url).status_code == 204
    entries = list(AuditEntry.objects.order_by("id"))
    assert [entry.verb for entry in entries] == ["create", "change", "change", "delete"]
    assert (entries[1].before["cooldown"], entries[1].after["cooldown"]) == (60.0, 5.0)
    listed = ann.get("/api/v1/audit/?object_type=elasticity.elasticitypolicy").json()["results"]
    assert [entry["verb"] for entry in listed] == ["delete", "change", "change", "create"]
    assert (listed[0]["actor"], listed[0]["after"]) == ("ann", None)


def test_windows_of_time_are_kept_and_a_wrong_one_is_named(make_api: Api) -> None:
    ann = make_api("ann", **MAY)
    made = ann.post(POLICIES, {**GIVEN, "schedule": [NIGHTS]}).json()
    assert made["schedule"] == [NIGHTS]
    url = f"{POLICIES}{made['id']}/"
    refused = ann.patch(url, {"schedule": [NIGHTS, {**NIGHTS, "name": "b", "from": "8:00"}]})
    assert refused.status_code == 400
    assert "schedule[1].from: '8:00' must be a time from 00:00 to 23:59" in refused.content.decode()
    assert ElasticityPolicy.objects.get().schedule == [NIGHTS]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"min_replicas": 5}, "max_replicas"),  # 5 > 4
    ({"min_replicas": 0}, "min_replicas"),
    ({"min_replicas": -1}, "min_replicas"),
    ({"min_replicas": None}, "min_replicas"),
    ({"max_replicas": "many"}, "max_replicas"),
    ({"max_replicas": 2**31}, "max_replicas"),
    ({"replica_increment_step": 0}, "replica_increment_step"),
    ({"replica_discrete_values": []}, "replica_discrete_values"),
    ({"replica_discrete_values": [1, 9]}, "replica_discrete_values"),
    ({"replica_discrete_values": [2, 4]}, "replica_discrete_values"),  # without the minimum
    ({"replica_discrete_values": [1, 2], "replica_increment_step": 1}, "replica_discrete_values"),
    ({"replica_discrete_values": 3}, "replica_discrete_values"),
    ({"cooldown": -1}, "cooldown"),
    ({"scaling_timeout": "soon"}, "scaling_timeout"),
    ({"min_gain": -0.1}, "min_gain"),
    ({"batch_policy": "grow"}, "batch_policy"),
    ({"lr_rule": "linear"}, "lr_rule"),  # the batch is preserved
    ({"schedule": {"a": 1}}, "schedule"),
    ({"schedule": ["nights"]}, "schedule"),
    ({"schedule": [{**NIGHTS, "timezone": "Mars/Olympus"}]}, "schedule"),
    ({"schedule": [{**NIGHTS, "max_replicas": 0}]}, "schedule"),
    ({"name": "Not A Name"}, "name"),
    ({"name": "trailing-"}, "name"),
    ({"name": ""}, "name"),
    ({"name": "taken"}, "name"),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED)
def test_a_policy_is_refused_by_field(make_api: Api, fields: dict[str, Any], field: str) -> None:
    make_policy_row("taken")
    response = make_api("ann", **MAY).post(POLICIES, {**GIVEN, **fields})
    assert response.status_code == 400
    named = {error["field"].split(".")[0] for error in response.json()["errors"]}
    assert named == {field}
    assert ElasticityPolicy.objects.count() == 1
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("user", "want"),
    [
        (None, 401),
        ({"permissions": MAY["permissions"]}, 403),  # not staff
        ({"staff": True}, 403),  # no permission
    ],
)
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_a_denied_write_leaves_nothing_behind(
    make_api: Api, user: dict[str, Any] | None, want: int, method: str
) -> None:
    row = make_policy_row("steady")
    client = make_api("ann", **user) if user is not None else make_api()
    url = POLICIES if method == "post" else f"{POLICIES}{row.pk}/"
    response = getattr(client, method)(url, {**GIVEN, "name": "other"})
    assert response.status_code == want
    assert list(ElasticityPolicy.objects.values_list("name", "max_replicas")) == [("steady", 8)]
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(("method", "verb"), [("delete", "deleted"), ("patch", "renamed")])
def test_a_policy_in_use_stays(make_api: Api, method: str, verb: str) -> None:
    row = make_policy_row("steady")
    job = make_job(policy=row, policy_name="steady")
    ann = make_api("ann", **MAY)
    response = getattr(ann, method)(f"{POLICIES}{row.pk}/", {"name": "other"})
    [error] = response.json()["errors"]
    assert (response.status_code, error["code"]) == (400, "in_use")
    assert f"can't be {verb}" in error["message"]
    assert str(job) in error["message"]
    assert ElasticityPolicy.objects.get().name == "steady"
    job.phase, job.finished_at = "succeeded", job.created_at
    job.save()
    assert getattr(ann, method)(f"{POLICIES}{row.pk}/", {"name": "other"}).status_code < 300


def test_a_class_of_our_own(make_api: Api) -> None:
    ann = make_api("ann", **MAY)
    made = ann.post(CLASSES, {"name": "batch", "value": 10, "preemption_policy": "Never"})
    assert (made.status_code, made.json()["source"]) == (201, "record")
    for given, field in (
        ({"name": "batch", "value": 1}, "name"),
        ({"name": "b", "value": 1_000_000_001}, "value"),
        ({"name": "b", "value": 1.5}, "value"),
        ({"name": "b"}, "value"),
        ({"name": "b", "value": 1, "preemption_policy": "Always"}, "preemption_policy"),
    ):
        refused = ann.post(CLASSES, given)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, field)
    assert PriorityClass.objects.count() == 1


def test_a_class_of_a_cluster_is_changed_there(make_api: Api) -> None:
    row = make_class(source="cluster")
    ann = make_api("ann", **MAY)
    for method in ("patch", "delete"):
        response = getattr(ann, method)(f"{CLASSES}{row.pk}/", {"value": 5})
        assert response.status_code == 400
        assert "comes from a cluster" in response.json()["errors"][0]["message"]
    row.refresh_from_db()
    assert row.value == 1000


SYNC: list[tuple[str, dict[str, Any] | None, dict[str, Any], tuple[Any, ...], int]] = [
    # name, the row before, what is seen; (value, policy, source) then, rows changed
    ("new", None, {"value": 5}, (5, "PreemptWhole", "cluster"), 1),
    ("new, never preempting", None, {"value": 5, "preemption_policy": "Never"},
     (5, "ReclaimElastic", "cluster"), 1),
    ("of the system", None, {"value": 2_000_000_000}, (2_000_000_000, "PreemptWhole", "cluster"),
     1),
    ("changed there", {"value": 4, "source": "cluster", "preemption_policy": "PreemptWhole"},
     {"value": 5}, (5, "PreemptWhole", "cluster"), 1),
    ("ours keeps its policy", {"value": 4, "preemption_policy": "Never"}, {"value": 5},
     (5, "Never", "record"), 1),
    ("the same", {"value": 5, "preemption_policy": "Never"}, {"value": 5},
     (5, "Never", "record"), 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "seen", "want", "changed"), SYNC)
def test_classes_follow_the_cluster(
    name: str, before: dict[str, Any] | None, seen: dict[str, Any], want: tuple[Any, ...],
    changed: int,
) -> None:  # fmt: skip
    if before is not None:
        make_class("serving", **before)
    assert priorities.sync_observed([{"name": "serving", "description": "", **seen}]) == changed
    row = PriorityClass.objects.get()
    assert (row.value, row.preemption_policy, row.source) == want
    assert AuditEntry.objects.count() == changed
    assert priorities.sync_observed([{"name": "serving", "description": "", **seen}]) == 0
