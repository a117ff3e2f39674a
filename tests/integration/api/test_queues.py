"""Queues, cohorts and cluster settings over the API: who may, what is refused, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.clusters.models import ClusterSettings
from apps.core.models import AuditEntry
from apps.priorities.models import Cohort, Queue
from tests.rows import GPU, make_cluster, make_cohort, make_queue

pytestmark = pytest.mark.django_db

Api = Callable[..., APIClient]
QUEUES, COHORTS = "/api/v1/queues/", "/api/v1/cohorts/"
SETTINGS = "/api/v1/clusters/east/settings/"
MAY = {
    "staff": True,
    "permissions": [
        *(f"priorities.{verb}_{kind}" for verb in ("add", "change", "delete")
          for kind in ("queue", "cohort")),
        "clusters.change_clustersettings",
    ],
}  # fmt: skip
QUOTA = {"resource": GPU, "nominal": 16, "borrowing_limit": 8, "lending_limit": None}
GIVEN = {"cluster": "east", "name": "research", "cohort": "all", "quotas": [QUOTA]}


def test_a_queues_life(make_api: Api) -> None:
    make_cluster()
    ann = make_api("ann", **MAY)
    made = ann.post(QUEUES, GIVEN)
    assert made.status_code == 201
    body = made.json()
    assert (body["quotas"], body["weight"], body["objective"]) == ([QUOTA], 1.0, "fair_share")
    url = f"{QUEUES}{body['id']}/"
    assert ann.patch(url, {"weight": 2}).json()["quotas"] == [QUOTA]  # not given, so kept
    other = {"resource": "amd.com/gpu", "nominal": 4}
    changed = ann.put(url, {**GIVEN, "quotas": [other]}).json()
    assert changed["quotas"] == [{**other, "borrowing_limit": None, "lending_limit": None}]
    assert ann.get(QUEUES, {"cluster": "east"}).json()["results"] == [changed]
    assert ann.get(QUEUES, {"cluster": "west"}).json()["results"] == []
    assert ann.patch(url, {"weight": 2}).status_code == 200  # nothing changes: no entry
    assert ann.delete(url).status_code == 204
    entries = list(AuditEntry.objects.order_by("id"))
    assert [entry.verb for entry in entries] == ["create", "change", "change", "delete"]
    assert entries[0].after["quotas"] == {
        GPU: {"nominal": 16, "borrowing_limit": 8, "lending_limit": None}
    }
    assert (entries[1].before["weight"], entries[1].after["weight"]) == (1.0, 2.0)
    assert entries[0].after["cluster"] == "east"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"cluster": "west"}, "cluster"),
    ({"cluster": "ea\x00st"}, "cluster"),
    ({"cluster": ["east"]}, "cluster"),
    ({"cluster": None}, "cluster"),
    ({"name": "Not A Name"}, "name"),
    ({"name": "taken"}, "name"),
    ({"name": ""}, "name"),
    ({"cohort": "Not A Name"}, "cohort"),
    ({"weight": 0}, "weight"),
    ({"weight": "heavy"}, "weight"),
    ({"objective": "luck"}, "objective"),
    ({"reserve_after_s": -1}, "reserve_after_s"),
    ({"share_floor": 1.5}, "share_floor"),
    ({"quotas": [{"resource": "gpu", "nominal": 1}]}, "quotas"),
    ({"quotas": [{"resource": GPU, "nominal": -1}]}, "quotas"),
    ({"quotas": [{"resource": GPU}]}, "quotas"),
    ({"quotas": [{"resource": GPU, "nominal": 1, "lending_limit": 2}]}, "quotas"),
    ({"quotas": [{"resource": GPU, "nominal": 1}] * 2}, "quotas"),
    ({"quotas": {GPU: 8}}, "quotas"),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED)
def test_a_queue_is_refused_by_field(make_api: Api, fields: dict[str, Any], field: str) -> None:
    make_queue(make_cluster(), "taken")
    response = make_api("ann", **MAY).post(QUEUES, {**GIVEN, **fields})
    assert response.status_code == 400
    assert {error["field"].split(".")[0] for error in response.json()["errors"]} == {field}
    assert Queue.objects.count() == 1
    assert not AuditEntry.objects.exists()


def test_a_wrong_quota_is_named_and_leaves_the_old_ones(make_api: Api) -> None:
    row = make_queue(quotas={GPU: {"nominal": 8}})
    wrong = {"resource": GPU, "nominal": 1, "lending_limit": 2}
    response = make_api("ann", **MAY).patch(f"{QUEUES}{row.pk}/", {"quotas": [wrong]})
    [error] = response.json()["errors"]
    assert error["field"] == f"quotas.{GPU}.lending_limit"
    assert error["message"] == "2 must not exceed nominal (1): a queue lends only what it owns."
    assert list(row.quotas.values_list("nominal", flat=True)) == [8]
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("fields", [{"name": "other"}, {"cluster": "west"}])
def test_a_queue_keeps_its_name_and_cluster(make_api: Api, fields: dict[str, str]) -> None:
    make_cluster("west")
    row = make_queue()
    response = make_api("ann", **MAY).patch(f"{QUEUES}{row.pk}/", fields)
    [error] = response.json()["errors"]
    assert [error["field"]] == list(fields)
    assert "create another queue" in error["message"]
    row.refresh_from_db()
    assert (row.name, row.cluster.name) == ("research", "east")


def test_two_clusters_may_name_a_queue_alike(make_api: Api) -> None:
    make_queue()
    make_cluster("west")
    assert make_api("ann", **MAY).post(QUEUES, {**GIVEN, "cluster": "west"}).status_code == 201


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
    row = make_queue()
    client = make_api("ann", **user) if user is not None else make_api()
    url = QUEUES if method == "post" else f"{QUEUES}{row.pk}/"
    assert getattr(client, method)(url, {**GIVEN, "weight": 3}).status_code == want
    assert client.patch(SETTINGS, {"max_disruption_ratio": 0.5}).status_code == want
    assert list(Queue.objects.values_list("name", "weight")) == [("research", 1.0)]
    assert not ClusterSettings.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_cohorts_life(make_api: Api) -> None:
    make_cluster()
    ann = make_api("ann", **MAY)
    given = {"cluster": "east", "name": "all", "quotas": [{"resource": GPU, "nominal": 8}]}
    made = ann.post(COHORTS, given)
    assert (made.status_code, made.json()["quotas"]) == (201, given["quotas"])
    taken = ann.post(COHORTS, given)
    assert (taken.status_code, taken.json()["errors"][0]["field"]) == (400, "name")
    url = f"{COHORTS}{made.json()['id']}/"
    assert ann.patch(url, {"quotas": []}).json()["quotas"] == []
    assert ann.delete(url).status_code == 204
    assert not Cohort.objects.exists()
    verbs = AuditEntry.objects.order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["create", "change", "delete"]


def test_settings_are_the_defaults_until_they_are_set(make_api: Api) -> None:
    make_cohort()
    ann = make_api("ann", **MAY)
    before = ann.get(SETTINGS).json()
    assert (before["cluster"], before["spares"], before["updated_at"]) == ("east", {}, None)
    assert (before["max_disruption_ratio"], before["topology_levels"]) == (1.0, [])
    assert not ClusterSettings.objects.exists()
    set_ = ann.patch(SETTINGS, {"spares": {GPU: 8}}).json()
    assert {**set_, "updated_at": None} == {**before, "spares": {GPU: 8}}
    assert ann.patch(SETTINGS, {"bind_timeout_s": 5}).json()["spares"] == {GPU: 8}
    assert ann.get(SETTINGS).json()["bind_timeout_s"] == 5.0
    entries = list(AuditEntry.objects.order_by("id"))
    assert [entry.verb for entry in entries] == ["create", "change"]
    assert ann.get("/api/v1/clusters/west/settings/").status_code == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"topology_levels": ["no label"]}, "topology_levels"),
        ({"topology_levels": "rack"}, "topology_levels"),
        ({"spares": {GPU: -1}}, "spares"),
        ({"spares": {"gpu": 1}}, "spares"),
        ({"reserves": [GPU]}, "reserves"),
        ({"forecast_quantile": 1}, "forecast_quantile"),
        ({"max_disruption_ratio": 0}, "max_disruption_ratio"),
        ({"offender_faults": 0}, "offender_faults"),
        ({"offender_faults": 2**40}, "offender_faults"),
        ({"departure_notice_s": -1}, "departure_notice_s"),
    ],
)
def test_settings_are_refused_by_field(make_api: Api, fields: dict[str, Any], field: str) -> None:
    make_cluster()
    response = make_api("ann", **MAY).patch(SETTINGS, fields)
    assert response.status_code == 400
    assert {error["field"].split(".")[0] for error in response.json()["errors"]} == {field}
    assert not ClusterSettings.objects.exists()
    assert not AuditEntry.objects.exists()
