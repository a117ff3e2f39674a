"""What the API shows, and that what isn't known is null with its age."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.clusters.models import Cluster, Node, NodePool
from apps.decisions.models import Plan
from apps.training.models import JobEvent, ThroughputSample
from tests.rows import (
    AT,
    GPU,
    after,
    make_attempt,
    make_capacity,
    make_cluster,
    make_command,
    make_decision,
    make_job,
    make_plan,
    make_policy_row,
    make_recovery,
    make_replica,
    make_sample,
)

pytestmark = pytest.mark.django_db

Api = Callable[..., APIClient]
UNKNOWN_ID = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"


def seconds_ago(seconds: float) -> Any:
    return timezone.now() - timedelta(seconds=seconds)


def make_node(cluster: Cluster, name: str = "n0", used: int = 0, **fields: Any) -> Node:
    pool, _ = NodePool.objects.get_or_create(cluster=cluster, name=fields.pop("pool", "main"))
    values = {
        "uid": f"uid-{name}",
        "ready": True,
        "capacity": {GPU: 8},
        "states": {GPU: {"used": used, "free": 8 - used}},
        **fields,
    }
    return Node.objects.create(cluster=cluster, pool=pool, name=name, **values)


@pytest.mark.parametrize(
    "path",
    ["audit", "clusters", "jobs", "decisions", "priority-classes", "elasticity-policies", "tokens"],
)
def test_reading_needs_signing_in(make_api: Api, path: str) -> None:
    response = make_api().get(f"/api/v1/{path}/")
    assert response.status_code == 401
    assert response.json()["errors"][0]["code"] == "not_authenticated"
    assert make_api("ann").get(f"/api/v1/{path}/").json() == {
        "next": None,
        "previous": None,
        "results": [],
    }


@pytest.mark.parametrize(
    "path",
    [
        "clusters/nowhere",
        "clusters/nowhere/nodes",
        "clusters/nowhere/pending",
        "clusters/nowhere/pending/Pod/ml/p0",
        "clusters/nowhere/notices",
        f"clusters/nowhere/capacity/?resource={GPU}#",
        f"jobs/{UNKNOWN_ID}",
        f"jobs/{UNKNOWN_ID}/replicas",
        f"jobs/{UNKNOWN_ID}/samples",
        "jobs/not-an-id",
        "decisions/7",
        "plans/7",
        "nothing/here",
    ],
)
def test_what_isnt_there_is_404_in_the_one_shape(make_api: Api, path: str) -> None:
    response = make_api("ann").get(f"/api/v1/{path.rstrip('#')}" + ("" if "?" in path else "/"))
    assert response.status_code == 404
    [error] = response.json()["errors"]
    assert set(error) == {"field", "code", "message"}


def test_capacity_now_is_the_sum_of_the_nodes(make_api: Api) -> None:
    cluster = make_cluster(accounted_at=seconds_ago(2), last_observed_at=seconds_ago(1))
    make_node(cluster, "n0", used=8)
    make_node(cluster, "n1", used=3)
    make_node(cluster, "n2", gone_at=AT)
    make_node(cluster, "s0", pool="spare")
    make_capacity(cluster, AT, used=11, total=24)
    [found] = make_api("ann").get("/api/v1/clusters/").json()["results"]
    assert (found["name"], found["node_count"], found["stale"]) == ("east", 3, False)
    [capacity] = found["capacity"]
    assert (capacity["resource"], capacity["pool"], capacity["total"]) == (GPU, None, 24)
    assert sum(capacity["states"].values()) == 24
    assert {k: v for k, v in capacity["states"].items() if v} == {"used": 11, "free": 13}
    assert capacity["holders"] == {"Job/ml/llama": 11}
    assert 2 <= capacity["age_s"] < 10
    detail = make_api("bob").get("/api/v1/clusters/east/").json()
    assert [(p["pool"], p["total"]) for p in detail["pools"]] == [("main", 16), ("spare", 8)]


def test_capacity_that_is_too_old_is_absent_with_its_age(make_api: Api) -> None:
    cluster = make_cluster(accounted_at=seconds_ago(31), last_error="timed out")
    make_node(cluster, used=8)
    [found] = make_api("ann").get("/api/v1/clusters/").json()["results"]
    [capacity] = found["capacity"]
    assert (capacity["total"], capacity["states"], capacity["holders"]) == (None, None, None)
    assert capacity["age_s"] > 30
    assert (found["stale"], found["last_error"]) == (True, "timed out")
    [node] = make_api("bob").get("/api/v1/clusters/east/nodes/").json()["results"]
    assert node["resources"] == [{"resource": GPU, "total": 8, "states": None}]


def test_a_cluster_that_was_never_observed(make_api: Api) -> None:
    make_cluster()
    [found] = make_api("ann").get("/api/v1/clusters/").json()["results"]
    assert (found["last_observed_at"], found["age_s"], found["stale"]) == (None, None, True)
    assert found["capacity"] == []
    pending = make_api("bob").get("/api/v1/clusters/east/pending/").json()
    assert (pending["plan"], pending["items"], pending["age_s"]) == (None, None, None)


def test_nodes(make_api: Api) -> None:
    cluster = make_cluster(accounted_at=seconds_ago(1))
    taint = {"key": "local", "value": "true", "effect": "NoSchedule"}
    make_node(cluster, "n1", ready=False)
    make_node(cluster, "n0", taints=[taint], unschedulable=True)
    ann = make_api("ann")
    first, second = ann.get("/api/v1/clusters/east/nodes/").json()["results"]
    assert (first["name"], first["taints"], first["unschedulable"]) == ("n0", [taint], True)
    assert (second["name"], second["ready"], second["pool"]) == ("n1", False, "main")
    ready = ann.get("/api/v1/clusters/east/nodes/?ready=true").json()["results"]
    assert [node["name"] for node in ready] == ["n0"]


def test_pending(make_api: Api) -> None:
    cluster = make_cluster()
    demand = {
        "workload": "Deployment/serve/chat",
        "priority": 1000,
        "pods": 2,
        "requests": {GPU: 8},
        "since": "2026-11-02T12:00:00Z",
        "reason": {"code": "no_capacity", "sentence": "Nothing free.", "numbers": {"missing": 4}},
    }
    make_plan(cluster, 1)
    make_plan(cluster, 2, pending=[demand])
    body = make_api("ann").get("/api/v1/clusters/east/pending/").json()
    assert body["items"] == [{**demand, "rejected": [], "rejected_count": 0, "unblock": []}]
    assert body["reservations"] == []
    assert body["age_s"] > 0


WHY = {"code": "at_minimum", "sentence": "Is at its minimum.", "numbers": {"min": 2}}
HELPS = {"code": "uncordon_nodes", "sentence": "Uncordon n7.", "numbers": {"nodes": "n7"}}


def make_explained(cluster: Cluster) -> dict[str, Any]:
    """A plan in which one pod waits, places are kept for it, and a node is leaving."""
    row = {
        "workload": "Pod/serve/chat-0",
        "priority": 1000,
        "pods": 1,
        "requests": {GPU: 8},
        "since": "2026-11-02T12:00:00Z",
        "reason": {"code": "no_capacity", "sentence": "Nothing free.", "numbers": {"missing": 4}},
    }
    why = {"rejected": [{"candidate": "Job/ml/bert", **WHY}], "unblock": [HELPS]}
    make_plan(
        cluster,
        pending=[{**row, "explanation": 0, "history": [1.0, 0, None]}],
        explanations=[why],
        reservations=[{"demand": "Pod/serve/chat-0", "priority": 1000, "nodes": {"n1": {GPU: 4}}}],
        notices=[{"subject": "n3", "code": "node_departs", "sentence": "Leaves.", "numbers": {}}],
    )
    return {**row, **why, "rejected_count": 1}


def test_pending_with_what_explains_it(make_api: Api) -> None:
    demand = make_explained(make_cluster())
    ann = make_api("ann")
    body = ann.get("/api/v1/clusters/east/pending/").json()
    assert body["items"] == [demand]
    assert body["reservations"][0]["nodes"] == {"n1": {GPU: 4}}
    brief = ann.get("/api/v1/clusters/east/pending/?rejected=false").json()
    assert brief["items"] == [{**demand, "rejected": None}]
    assert ann.get("/api/v1/clusters/east/pending/?rejected=maybe").status_code == 400
    plan = ann.get(f"/api/v1/plans/{body['plan']}/").json()
    assert (plan["pending"], plan["reservations"]) == ([demand], body["reservations"])
    assert [notice["subject"] for notice in plan["notices"]] == ["n3"]


def test_notices(make_api: Api) -> None:
    cluster = make_cluster()
    ann = make_api("ann")
    assert ann.get("/api/v1/clusters/east/notices/").json()["items"] is None
    make_explained(cluster)
    body = ann.get("/api/v1/clusters/east/notices/").json()
    assert body["items"] == [
        {"subject": "n3", "code": "node_departs", "sentence": "Leaves.", "numbers": {}}
    ]
    assert body["age_s"] > 0


def test_why_one_is_pending(make_api: Api) -> None:
    cluster = make_cluster()
    demand = make_explained(cluster)
    decision = make_decision(make_job(cluster, "bert"), Plan.objects.get(), share=3)
    ann = make_api("ann")
    found = ann.get("/api/v1/clusters/east/pending/Pod/serve/chat-0/").json()
    assert (found["workload"], found["waits"]) == ("Pod/serve/chat-0", True)
    assert (found["items"], found["decision"]) == ([demand], None)
    assert len(found["reservations"]) == 1
    runs = ann.get("/api/v1/clusters/east/pending/Job/ml/bert/").json()
    assert (runs["waits"], runs["items"], runs["reservations"]) == (False, [], [])
    assert (runs["decision"]["id"], runs["decision"]["share"]) == (decision.pk, 3)
    assert (runs["decision"]["expected_gain"], runs["decision"]["unblock"]) == (None, [])
    nobody = ann.get("/api/v1/clusters/east/pending/Job/ml/ghost/")
    assert nobody.status_code == 404
    [error] = nobody.json()["errors"]
    assert error["message"] == (
        "Nothing named Job/ml/ghost waits on east, and no managed job of that name runs there. "
        "A pod that has an owner is asked for by the owner's kind and name."
    )


def test_jobs(make_api: Api) -> None:
    cluster = make_cluster(sandbox=True)
    policy = make_policy_row("elastic", min_replicas=2, max_replicas=6, replica_increment_step=2)
    job = make_job(cluster, policy=policy, policy_name="elastic", granted=4, team="nlp")
    [found] = make_api("ann").get("/api/v1/jobs/").json()["results"]
    assert (found["id"], found["cluster"], found["team"]) == (str(job.pk), "east", "nlp")
    assert (found["policy"], found["elastic"]) == ("elastic", True)
    assert (found["min_replicas"], found["max_replicas"]) == (2, 6)
    counts = [found[name] for name in ("desired", "granted", "running", "productive")]
    assert counts == [None, 4, None, None]
    detail = make_api("bob").get(f"/api/v1/jobs/{job.pk}/").json()
    assert (detail["valid_sizes"], detail["sandbox"]) == ([2, 4, 6], True)
    assert (detail["report_age_s"], detail["loss"]) == (None, None)


FILTERS: list[tuple[str, list[str]]] = [
    ("", ["c", "b", "a"]),
    ("?cluster=east", ["b", "a"]),
    ("?cluster=nowhere", []),
    ("?phase=running", ["c", "a"]),
    ("?phase=running&phase=succeeded", ["c", "b", "a"]),
    ("?live=true", ["c", "a"]),
    ("?live=false", ["b"]),
    ("?team=nlp", ["a"]),
    ("?search=B", ["b"]),
    ("?search=ml", ["c", "b", "a"]),
    ("?search=%25", []),
    ("?ordering=name", ["a", "b", "c"]),
    ("?ordering=-priority", ["b", "a", "c"]),
]


@pytest.mark.parametrize(("query", "want"), FILTERS)
def test_filters_of_jobs(make_api: Api, query: str, want: list[str]) -> None:
    east, west = make_cluster(), make_cluster("west")
    make_job(east, "a", team="nlp", priority=5)
    make_job(east, "b", phase="succeeded", priority=9, created_at=after(1))
    make_job(west, "c", priority=1, created_at=after(2))
    found = make_api("ann").get(f"/api/v1/jobs/{query}").json()["results"]
    assert [job["name"] for job in found] == want


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("jobs/?phase=asleep", "phase"),
        ("jobs/?team=%00", "team"),
        ("decisions/?since=yesterday", "since"),
        ("decisions/?job=llama", "job"),
        ("clusters/east/capacity/", "resource"),
        (f"clusters/east/capacity/?resource={GPU}&points=0", "points"),
        (f"clusters/east/capacity/?resource={GPU}&points=2001", "points"),
        (f"clusters/east/capacity/?resource={GPU}&since=2026-01-02T00:00Z&until=2026-01-01T00:00Z",
         "since"),
        (f"clusters/east/capacity/?resource={GPU}&until=0001-01-01T00:00Z", "until"),
    ],
)  # fmt: skip
def test_a_query_that_cant_be_understood(make_api: Api, query: str, field: str) -> None:
    make_cluster()
    response = make_api("ann").get(f"/api/v1/{query}")
    assert response.status_code == 400
    assert [error["field"] for error in response.json()["errors"]] == [field]


def test_pages(make_api: Api) -> None:
    cluster = make_cluster()
    for index in range(5):
        make_job(cluster, f"j{index}", created_at=after(index))
    ann, names, url = make_api("ann"), [], "/api/v1/jobs/?limit=2"
    while url:
        body = ann.get(url).json()
        names += [job["name"] for job in body["results"]]
        url = body["next"]
    assert names == ["j4", "j3", "j2", "j1", "j0"]


def test_what_belongs_to_a_job(make_api: Api) -> None:
    job = make_job()
    make_replica(job, 1)
    make_replica(job, 0)
    attempt = make_attempt(job)
    make_recovery(attempt, lost=["llama-2"])
    other = make_job(job.cluster, "other")
    make_replica(other)
    ann = make_api("ann")

    def results(name: str) -> list[dict[str, Any]]:
        return ann.get(f"/api/v1/jobs/{job.pk}/{name}/").json()["results"]

    assert [row["index"] for row in results("replicas")] == [0, 1]
    assert [row["attempt"] for row in results("attempts")] == ["a1"]
    [recovery] = results("recoveries")
    assert (recovery["kind"], recovery["lost"], recovery["attempt"]) == (
        "replica_lost",
        ["llama-2"],
        "a1",
    )
    assert recovery["stages"] == [{"stage": "detect", "start_s": 0.0, "duration_s": 0.4}]


def test_decisions(make_api: Api) -> None:
    job = make_job()
    plan = make_plan(job.cluster)
    decision = make_decision(job, plan)
    command = make_command(job, decision, victims=["llama-3"])
    quiet = make_decision(make_job(job.cluster, "b"), plan, at=after(1), reason_code="at_maximum")
    ann = make_api("ann")
    second, first = ann.get("/api/v1/decisions/").json()["results"]
    assert (first["id"], second["id"]) == (decision.pk, quiet.pk)
    assert (first["job"]["name"], first["cluster"], first["plan"]) == ("llama", "east", plan.pk)
    assert (first["reason_code"], first["numbers"]) == (
        "shrinks_for_priority",
        {"from": 4, "to": 2},
    )
    assert (first["command"]["id"], first["command"]["victims"]) == (str(command.pk), ["llama-3"])
    assert second["command"] is None

    def ids(query: str) -> list[int]:
        return [row["id"] for row in ann.get(f"/api/v1/decisions/?{query}").json()["results"]]

    assert ids("reason_code=at_maximum") == [quiet.pk]
    assert ids(f"job={job.pk}") == [decision.pk]
    assert ids("since=2026-11-02T12:00:01Z") == [quiet.pk]
    assert ids("with_command=true") == [decision.pk]
    assert ids("with_command=false") == [quiet.pk]
    assert ids("cluster=west") == []
    of_job = ann.get(f"/api/v1/jobs/{job.pk}/decisions/").json()["results"]
    assert [row["id"] for row in of_job] == [decision.pk]
    shown = ann.get(f"/api/v1/plans/{plan.pk}/").json()
    assert (shown["number"], shown["replayable"], len(shown["decisions"])) == (1, False, 2)


def test_lists_cost_the_same_however_long(
    make_api: Api, django_assert_max_num_queries: Any
) -> None:
    cluster = make_cluster()
    for index in range(20):
        make_command(make_job(cluster, f"j{index}"))
    ann = make_api("ann")
    for path in ("jobs", "decisions"):
        with django_assert_max_num_queries(4):
            assert len(ann.get(f"/api/v1/{path}/").json()["results"]) == 20


# -- series ----------------------------------------------------------------------------------------


def get_capacity(api: APIClient, **query: Any) -> list[dict[str, Any]]:
    asked = {"resource": GPU, "since": AT.isoformat(), "until": after(100).isoformat(), **query}
    return api.get("/api/v1/clusters/east/capacity/", asked).json()["series"]


def test_a_capacity_series(make_api: Api) -> None:
    cluster = make_cluster()
    for second in range(100):
        make_capacity(cluster, after(second), used=second % 8)
    make_capacity(cluster, after(50), resource="amd.com/gpu")
    ann = make_api("ann")
    every = get_capacity(ann)
    assert len(every) == 100
    assert every[3]["states"]["used"] == 3
    assert set(every[0]["states"]) >= {"free", "used", "terminating", "booting"}
    thin = get_capacity(ann, points=10)
    assert 9 <= len(thin) <= 10
    # each point is a sample as it was, the last of its bucket
    assert all(sum(point["states"].values()) == point["total"] == 8 for point in thin)
    assert thin[-1]["at"] == every[-1]["at"]
    assert [p["at"] for p in thin] == sorted(p["at"] for p in thin)
    assert len(get_capacity(ann, points=1)) == 1


def get_samples(api: APIClient, job: Any, **query: Any) -> dict[str, Any]:
    asked = {"since": AT.isoformat(), "until": after(1000).isoformat(), **query}
    return api.get(f"/api/v1/jobs/{job.pk}/samples/", asked).json()


def test_a_series_of_samples(make_api: Api) -> None:
    job = make_job()
    attempt = make_attempt(job)
    ThroughputSample.objects.bulk_create(
        make_sample(attempt, n, after(n), loss=n / 10, world_size=1 + n // 500, tokens_per_s=None)
        for n in range(1000)
    )
    ann = make_api("ann")
    whole = get_samples(ann, job, points=2000)
    assert (whole["bucket_s"], len(whole["series"])) == (None, 1000)
    assert whole["series"][7]["loss"] == 0.7
    thin = get_samples(ann, job, points=11)
    assert thin["bucket_s"] == 100
    series = thin["series"]
    assert 10 <= len(series) <= 11
    assert sum(point["samples"] for point in series) == 1000
    assert [point["step"] for point in series] == sorted(point["step"] for point in series)
    first = next(point for point in series if point["samples"] == 100)
    # a mean of ten seconds' losses, and the size at their end
    steps = range(first["step"] - 99, first["step"] + 1)
    assert first["loss"] == pytest.approx(sum(n / 10 for n in steps) / 100)
    assert (first["tokens_per_s"], series[-1]["world_size"]) == (None, 2)
    assert len(get_samples(ann, job, points=1)["series"]) == 1


def test_a_series_of_what_trainers_measure(make_api: Api) -> None:
    attempt = make_attempt(make_job())
    phases = [{"reduce": 1.0}, {"reduce": 3.0}, None]
    ThroughputSample.objects.bulk_create(
        make_sample(attempt, n, after(n), mfu=[0.2, 0.4, None][n], phases_ms=phases[n])
        for n in range(3)
    )
    whole = get_samples(make_api("ann"), attempt.job)["series"]
    assert [point["phases_ms"] for point in whole] == phases
    [thin] = get_samples(make_api("bob"), attempt.job, points=1)["series"]
    # the mean of those that are known; phases are those of the last sample
    assert (thin["mfu"], thin["phases_ms"], thin["grad_norm"]) == (pytest.approx(0.3), None, None)


def test_events_of_a_job(make_api: Api) -> None:
    job = make_job()
    for n, kind in enumerate(("log_match", "straggler")):
        JobEvent.objects.create(job=job, at=after(n), kind=kind, sentence=f"It was {kind}.")
    ann = make_api("ann")
    found = ann.get(f"/api/v1/jobs/{job.pk}/events/").json()["results"]
    assert [(event["kind"], event["attempt"]) for event in found] == [
        ("straggler", None),
        ("log_match", None),
    ]
    some = ann.get(f"/api/v1/jobs/{job.pk}/events/", {"kind": "log_match"}).json()["results"]
    assert [event["sentence"] for event in some] == ["It was log_match."]
    assert ann.get(f"/api/v1/jobs/{job.pk}/events/", {"kind": "x"}).status_code == 400


def test_a_series_without_samples_is_empty(make_api: Api) -> None:
    assert get_samples(make_api("ann"), make_job())["series"] == []
