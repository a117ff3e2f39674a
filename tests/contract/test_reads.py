"""Getting, listing, selecting and paging."""

from __future__ import annotations

import pytest
from kubernetes.client.exceptions import ApiException

from tests.contract.backends import Cluster
from tests.contract.support import Space, config_map, needs, pod, refused, status_of


def make_maps(space: Space, count: int, labels: dict[str, str] | None = None) -> list[str]:
    names = [f"map-{index:02}" for index in range(count)]
    for name in names:
        space.cluster.core.create_namespaced_config_map(
            space.name, config_map(name, labels=labels or {"of": "test"})
        )
    return names


def test_list_is_sorted_and_names_its_version(space: Space) -> None:
    names = make_maps(space, 3)
    listed = space.cluster.core.list_namespaced_config_map(space.name, label_selector="of=test")
    assert [item.metadata.name for item in listed.items] == names
    assert int(listed.metadata.resource_version) >= max(
        int(item.metadata.resource_version) for item in listed.items
    )


def test_items_of_a_list_have_no_kind_but_an_object_has(space: Space) -> None:
    make_maps(space, 1)
    listed = space.cluster.http.get(space.path("configmaps")).json()
    assert listed["kind"] == "ConfigMapList"
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])
    one = space.cluster.http.get(space.path("configmaps", "map-00")).json()
    assert (one["kind"], one["apiVersion"]) == ("ConfigMap", "v1")


def test_absent_object_is_404_with_details(space: Space) -> None:
    with pytest.raises(ApiException) as caught:
        space.cluster.batch.read_namespaced_job("nothing", space.name)
    body = status_of(caught.value)
    assert (body["code"], body["reason"]) == (404, "NotFound")
    assert body["message"] == 'jobs.batch "nothing" not found'
    assert body["details"] == {"name": "nothing", "group": "batch", "kind": "jobs"}


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nothings", "/apis/batch/v2", "/apis/no.such.group/v1/things", "/api/v3/pods"],
)
def test_unknown_path_is_404(cluster: Cluster, path: str) -> None:
    assert cluster.http.get(path).status_code == 404


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("app=a", ["a1", "a2"]),
        ("app==a,tier=front", ["a1"]),
        ("app!=a", ["b1", "none"]),
        ("app in (a,b)", ["a1", "a2", "b1"]),
        ("app in (a, b),tier notin (front)", ["a2", "b1"]),
        ("app", ["a1", "a2", "b1"]),
        ("!app", ["none"]),
        ("tier=front,!app", []),
    ],
)
def test_label_selectors(space: Space, selector: str, want: list[str]) -> None:
    for name, labels in (
        ("a1", {"app": "a", "tier": "front", "t": "1"}),
        ("a2", {"app": "a", "t": "1"}),
        ("b1", {"app": "b", "tier": "back", "t": "1"}),
        ("none", {"t": "1"}),
    ):
        space.cluster.core.create_namespaced_config_map(space.name, config_map(name, labels=labels))
    listed = space.cluster.core.list_namespaced_config_map(
        space.name, label_selector=f"t=1,{selector}"
    )
    assert [item.metadata.name for item in listed.items] == want


def test_field_selectors(space: Space) -> None:
    node = space.node("n")
    for name in ("p1", "p2", "p3"):
        space.create_pod(pod(name, schedulerName="nobody"))
    space.bind("p3", node)
    core = space.cluster.core

    def names(selector: str) -> list[str]:
        found = core.list_namespaced_pod(space.name, field_selector=selector).items
        return sorted(item.metadata.name for item in found)

    assert names(f"spec.nodeName={node}") == ["p3"]
    assert names("spec.nodeName=") == ["p1", "p2"]
    assert names("metadata.name=p2") == ["p2"]
    assert names("status.phase=Pending,spec.nodeName!=") == ["p3"]
    assert names("status.phase!=Pending") == []


@pytest.mark.parametrize(
    "query",
    [
        {"fieldSelector": "spec.nothing=1"},
        {"fieldSelector": "nonsense"},
        {"labelSelector": "a in b"},
        {"labelSelector": "=x"},
        {"limit": "-1x"},
    ],
    ids=str,
)
def test_bad_query_is_400(space: Space, query: dict[str, str]) -> None:
    answer = space.cluster.http.get(space.path("pods"), params=query)
    assert refused(answer) == (400, "BadRequest")


def test_pages_are_of_one_version(space: Space) -> None:
    names = make_maps(space, 7)
    core = space.cluster.core
    first = core.list_namespaced_config_map(space.name, label_selector="of=test", limit=3)
    # changes after the first page don't show in the others
    core.delete_namespaced_config_map("map-05", space.name)
    core.create_namespaced_config_map(space.name, config_map("map-99", labels={"of": "test"}))
    seen, page = [item.metadata.name for item in first.items], first
    while page.metadata._continue:
        page = core.list_namespaced_config_map(
            space.name, label_selector="of=test", limit=3, _continue=page.metadata._continue
        )
        assert page.metadata.resource_version == first.metadata.resource_version
        seen += [item.metadata.name for item in page.items]
    assert seen == names


def test_remaining_item_count(space: Space) -> None:
    make_maps(space, 5)
    path = space.path("configmaps")
    whole = space.cluster.http.get(path).json()["items"]
    page = space.cluster.http.get(path, params={"limit": 2}).json()
    assert page["metadata"]["remainingItemCount"] == len(whole) - 2
    last = space.cluster.http.get(path, params={"limit": 100}).json()["metadata"]
    assert "continue" not in last or last["continue"] == ""
    assert "remainingItemCount" not in last


def test_expired_continue_is_410_and_can_read_on(space: Space) -> None:
    names = make_maps(space, 4)
    core = space.cluster.core
    page = core.list_namespaced_config_map(space.name, label_selector="of=test", limit=2)
    core.delete_namespaced_config_map("map-03", space.name)
    space.cluster.expire()
    with pytest.raises(ApiException) as caught:
        core.list_namespaced_config_map(
            space.name, label_selector="of=test", limit=2, _continue=page.metadata._continue
        )
    body = status_of(caught.value)
    assert (body["code"], body["reason"]) == (410, "Expired")
    rest = core.list_namespaced_config_map(
        space.name,
        label_selector="of=test",
        limit=2,
        _continue=body["metadata"]["continue"],
    )
    assert [item.metadata.name for item in rest.items] == names[2:3]


def test_continue_that_is_not_ours_is_400(space: Space) -> None:
    answer = space.cluster.http.get(space.path("configmaps"), params={"continue": "bm9uc2Vuc2U"})
    assert refused(answer) == (400, "BadRequest")


def test_a_version_from_the_future_is_not_served(space: Space) -> None:
    answer = space.cluster.http.get(
        space.path("configmaps"), params={"resourceVersion": "999999999"}
    )
    body = answer.json()
    assert (answer.status_code, body["reason"]) == (504, "Timeout")
    assert body["details"]["causes"][0]["message"] == "Too large resource version"


def test_any_version_is_served_from_what_there_is(space: Space) -> None:
    make_maps(space, 1)
    listed = space.cluster.core.list_namespaced_config_map(space.name, resource_version="0")
    assert listed.metadata.resource_version != "0"


def test_table(space: Space) -> None:
    space.create_pod(pod("p", nodeSelector={"never": "matches"}))
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    table = space.cluster.http.get(space.path("pods"), headers=accept).json()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [column["name"] for column in table["columnDefinitions"]]
    want = ["Name", "Ready", "Status", "Restarts", "Age"]
    assert columns == [*want, "IP", "Node", "Nominated Node", "Readiness Gates"]
    [row] = table["rows"]
    assert row["cells"][:3] == ["p", "0/1", "Pending"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "p"


def test_metadata_only(space: Space) -> None:
    space.create_pod(pod("p", nodeSelector={"never": "matches"}))
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    listed = space.cluster.http.get(space.path("pods"), headers=accept).json()
    assert listed["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["p"]
    assert "spec" not in listed["items"][0]


@pytest.mark.parametrize("accept", ["application/xml", "image/png"])
def test_what_we_cannot_write_is_406(space: Space, accept: str) -> None:
    answer = space.cluster.http.get(space.path("pods"), headers={"Accept": accept})
    assert answer.status_code == 406


def test_discovery(cluster: Cluster) -> None:
    groups = {group["name"] for group in cluster.http.get("/apis").json()["groups"]}
    assert groups >= {"apps", "batch", "coordination.k8s.io", "scheduling.k8s.io"}
    found = {r["name"]: r for r in cluster.http.get("/apis/apps/v1").json()["resources"]}
    assert found["deployments/scale"]["kind"] == "Scale"
    assert found["deployments"]["shortNames"] == ["deploy"]
    core = {r["name"]: r for r in cluster.http.get("/api/v1").json()["resources"]}
    assert core["nodes"]["namespaced"] is False
    assert {"watch", "patch", "deletecollection"} <= set(core["pods"]["verbs"])
    assert {"pods/log", "pods/binding", "pods/eviction", "pods/status"} <= set(core)


def test_wrong_token_is_401(cluster: Cluster) -> None:
    answer = cluster.http.get("/api/v1/pods", headers={"Authorization": "Bearer wrong"})
    assert refused(answer) == (401, "Unauthorized")
    assert cluster.http.get("/readyz", headers={"Authorization": ""}).text == "ok"


def test_bootstrap_objects(cluster: Cluster) -> None:
    needs(cluster, 16, "system priority classes")
    names = {item.metadata.name for item in cluster.core.list_namespace().items}
    assert names >= {"default", "kube-system", "kube-public", "kube-node-lease"}
    classes = {c.metadata.name: c.value for c in cluster.scheduling.list_priority_class().items}
    assert classes["system-node-critical"] == 2_000_001_000
    assert classes["system-cluster-critical"] == 2_000_000_000
