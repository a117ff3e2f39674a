"""The four patch types."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.contract.support import Object, Space, config_map, deployment, pod, refused

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def send(space: Space, path: str, media: str, patch: Any, **query: str) -> httpx.Response:
    return space.cluster.http.patch(
        path, content=json.dumps(patch), headers={"Content-Type": media}, params=query
    )


@pytest.fixture
def maps(space: Space) -> str:
    """The path of a ConfigMap with data a=1 b=2 and label l=m."""
    space.cluster.core.create_namespaced_config_map(
        space.name, config_map("c", {"a": "1", "b": "2"}, labels={"l": "m"})
    )
    return space.path("configmaps", "c")


@pytest.mark.parametrize(
    ("media", "patch", "want"),
    [
        (MERGE, {"data": {"b": None, "c": "3"}}, {"a": "1", "c": "3"}),
        (MERGE, {"data": None}, None),
        (STRATEGIC, {"data": {"b": None, "c": "3"}}, {"a": "1", "c": "3"}),
        (STRATEGIC, {"data": {"$patch": "replace", "z": "9"}}, {"z": "9"}),
        (JSON, [{"op": "add", "path": "/data/c", "value": "3"}], {"a": "1", "b": "2", "c": "3"}),
        (JSON, [{"op": "remove", "path": "/data/a"}], {"b": "2"}),
        (
            JSON,
            [
                {"op": "test", "path": "/data/a", "value": "1"},
                {"op": "move", "from": "/data/a", "path": "/data/m"},
                {"op": "copy", "from": "/data/b", "path": "/data/n"},
                {"op": "replace", "path": "/data/b", "value": "x"},
            ],
            {"b": "x", "m": "1", "n": "2"},
        ),
    ],
)
def test_data_after(space: Space, maps: str, media: str, patch: Any, want: Object | None) -> None:
    answer = send(space, maps, media, patch)
    assert answer.status_code == 200
    assert answer.json().get("data") == want
    assert answer.json()["metadata"]["labels"] == {"l": "m"}


@pytest.mark.parametrize(
    ("media", "patch", "code"),
    [
        (JSON, [{"op": "test", "path": "/data/a", "value": "9"}], 422),
        (JSON, [{"op": "remove", "path": "/data/nothing"}], 422),
        (JSON, {"not": "a list"}, 400),
        (MERGE, ["not an object"], 422),
        (MERGE, {"metadata": {"resourceVersion": "1"}}, 409),
        (STRATEGIC, {"metadata": {"resourceVersion": "1"}}, 409),
        (JSON, [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}], 409),
        (MERGE, {"metadata": {"name": "other"}}, 400),
        ("text/plain", {"data": {}}, 415),
        (MERGE, {"data": {"a": {"b": "c"}}}, 422),
        (JSON, [{"op": "replace", "path": "/data", "value": 1}], 422),
    ],
)
def test_refused_patch_changes_nothing(
    space: Space, maps: str, media: str, patch: Any, code: int
) -> None:
    before = space.cluster.http.get(maps).json()
    assert send(space, maps, media, patch).status_code == code
    assert space.cluster.http.get(maps).json() == before


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
def test_version_in_a_patch_is_a_precondition(space: Space, maps: str, media: str) -> None:
    version = space.cluster.http.get(maps).json()["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"a": "8"}}
    assert send(space, maps, media, patch).json()["data"]["a"] == "8"
    assert refused(send(space, maps, media, patch)) == (409, "Conflict")


def test_patch_of_nothing_is_404(space: Space) -> None:
    answer = send(space, space.path("configmaps", "nothing"), MERGE, {})
    assert refused(answer) == (404, "NotFound")


def two_containers() -> Object:
    body = pod("p", schedulerName="nobody")
    body["spec"]["containers"] = [
        {"name": "a", "image": "i:1", "env": [{"name": "X", "value": "1"}]},
        {"name": "b", "image": "i:1"},
    ]
    return body


def test_strategic_merge_goes_by_the_merge_key(space: Space) -> None:
    space.create_pod(two_containers())
    patch = {"spec": {"containers": [{"name": "b", "image": "i:2"}]}}
    images = [
        (item["name"], item["image"])
        for item in send(space, space.path("pods", "p"), STRATEGIC, patch).json()["spec"][
            "containers"
        ]
    ]
    assert images == [("a", "i:1"), ("b", "i:2")]


def test_merge_replaces_lists(space: Space) -> None:
    space.create_pod(two_containers())
    patch = {"spec": {"containers": [{"name": "b", "image": "i:2"}]}}
    answer = send(space, space.path("pods", "p"), MERGE, patch)
    assert refused(answer) == (422, "Invalid"), "a pod's containers can't be removed"


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        (
            {"env": [{"name": "X", "value": "2"}, {"name": "Z", "value": "3"}]},
            {"X": "2", "Y": "y", "Z": "3"},
        ),
        ({"env": [{"name": "X", "$patch": "delete"}]}, {"Y": "y"}),
        ({"env": [{"$patch": "replace"}, {"name": "Q", "value": "q"}]}, {"Q": "q"}),
        ({"env": None}, {}),
    ],
)
def test_strategic_merge_of_env(space: Space, patch: Object, want: Object) -> None:
    body = deployment("d", paused=True)
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "X", "value": "1"},
        {"name": "Y", "value": "y"},
    ]
    space.cluster.apps.create_namespaced_deployment(space.name, body)
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", **patch}]}}}}
    after = send(space, space.path("deployments", "d", group="apps"), STRATEGIC, change).json()
    [main] = after["spec"]["template"]["spec"]["containers"]
    assert {item["name"]: item["value"] for item in main.get("env", [])} == want


def test_strategic_merge_directives(space: Space) -> None:
    core = space.cluster.core
    core.create_namespaced_config_map(
        space.name, config_map("f", finalizers=["x.example/one", "x.example/two"])
    )
    path = space.path("configmaps", "f")

    def finalizers(patch: Object) -> list[str]:
        answer = send(space, path, STRATEGIC, {"metadata": patch}).json()
        return answer["metadata"].get("finalizers", [])

    # what only the patch has comes first
    assert finalizers({"finalizers": ["x.example/three"]}) == [
        "x.example/three",
        "x.example/one",
        "x.example/two",
    ]
    assert finalizers({"$deleteFromPrimitiveList/finalizers": ["x.example/two"]}) == [
        "x.example/three",
        "x.example/one",
    ]
    ordered = ["x.example/one", "x.example/four", "x.example/three"]
    patch = {"$setElementOrder/finalizers": ordered, "finalizers": ["x.example/four"]}
    assert finalizers(patch) == ordered
    assert finalizers({"finalizers": None}) == []


def test_strategic_merge_conditions_by_type(space: Space) -> None:
    space.create_pod(pod("p", schedulerName="nobody"))
    path = space.path("pods", "p", sub="status")
    for kind, value in (("A", "True"), ("B", "False"), ("A", "False")):
        patch = {"status": {"conditions": [{"type": kind, "status": value}]}}
        answer = send(space, path, STRATEGIC, patch)
    found = {c["type"]: c["status"] for c in answer.json()["status"]["conditions"]}
    assert found == {"A": "False", "B": "False"}


def test_strategy_retains_only_its_own_keys(space: Space) -> None:
    space.cluster.apps.create_namespaced_deployment(space.name, deployment("d", paused=True))
    path = space.path("deployments", "d", group="apps")
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    after = send(space, path, STRATEGIC, patch)
    assert (after.status_code, after.json()["spec"]["strategy"]) == (200, {"type": "Recreate"})


# -- server-side apply ---------------------------------------------------------------------------


def apply(space: Space, body: Object, manager: str, **query: str) -> httpx.Response:
    group = "" if body["apiVersion"] == "v1" else body["apiVersion"].split("/")[0]
    plural = body["kind"].lower() + "s"
    path = space.path(plural, body["metadata"]["name"], group=group)
    return send(space, path, APPLY, body, fieldManager=manager, **query)


def owners(obj: Object) -> dict[tuple[str, str], Object]:
    return {
        (entry["manager"], entry["operation"]): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", [])
    }


def test_apply_creates_then_merges(space: Space) -> None:
    first = apply(space, config_map("c", {"a": "1"}), "one")
    assert first.status_code == 201
    assert owners(first.json()) == {("one", "Apply"): {"f:data": {"f:a": {}}}}
    second = apply(space, config_map("c", {"b": "2"}), "two")
    assert (second.status_code, second.json()["data"]) == (200, {"a": "1", "b": "2"})
    assert owners(second.json()) == {
        ("one", "Apply"): {"f:data": {"f:a": {}}},
        ("two", "Apply"): {"f:data": {"f:b": {}}},
    }


def test_apply_removes_what_it_no_longer_names(space: Space) -> None:
    apply(space, config_map("c", {"a": "1", "b": "2"}), "one")
    apply(space, config_map("c", {"b": "2"}), "two")
    after = apply(space, config_map("c", {"c": "3"}), "one").json()
    assert after["data"] == {"b": "2", "c": "3"}, "b is still two's"


def test_apply_conflict_names_manager_and_field(space: Space) -> None:
    apply(space, config_map("c", {"a": "1"}), "one")
    answer = apply(space, config_map("c", {"a": "2"}), "two")
    assert refused(answer) == (409, "Conflict")
    [cause] = answer.json()["details"]["causes"]
    assert cause["reason"] == "FieldManagerConflict"
    assert 'conflict with "one"' in cause["message"]
    assert cause["field"] == ".data.a"
    assert space.cluster.http.get(space.path("configmaps", "c")).json()["data"] == {"a": "1"}


def test_apply_force_takes_ownership(space: Space) -> None:
    apply(space, config_map("c", {"a": "1", "b": "1"}), "one")
    after = apply(space, config_map("c", {"a": "2"}), "two", force="true").json()
    assert after["data"] == {"a": "2", "b": "1"}
    assert owners(after) == {
        ("one", "Apply"): {"f:data": {"f:b": {}}},
        ("two", "Apply"): {"f:data": {"f:a": {}}},
    }


def test_apply_of_the_same_value_shares_ownership(space: Space) -> None:
    apply(space, config_map("c", {"a": "1"}), "one")
    after = apply(space, config_map("c", {"a": "1"}), "two").json()
    assert {key[0] for key in owners(after)} == {"one", "two"}
    after = apply(space, config_map("c"), "one").json()
    assert after["data"] == {"a": "1"}, "two still wants it"


def test_update_takes_ownership_from_apply(space: Space) -> None:
    apply(space, config_map("c", {"a": "1", "b": "1"}), "one")
    path = space.path("configmaps", "c")
    after = send(space, path, MERGE, {"data": {"a": "9"}}, fieldManager="editor").json()
    found = owners(after)
    assert found["one", "Apply"] == {"f:data": {"f:b": {}}}
    assert found["editor", "Update"] == {"f:data": {"f:a": {}}}
    answer = apply(space, config_map("c", {"a": "1", "b": "1"}), "one")
    assert refused(answer) == (409, "Conflict")
    assert 'conflict with "editor"' in answer.json()["details"]["causes"][0]["message"]


def test_apply_again_changes_nothing(space: Space) -> None:
    first = apply(space, config_map("c", {"a": "1"}), "one").json()
    again = apply(space, config_map("c", {"a": "1"}), "one").json()
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_apply_owns_list_items_by_key(space: Space) -> None:
    body = deployment("d", paused=True)
    after = apply(space, body, "one")
    assert after.status_code == 201, after.text
    spec = owners(after.json())["one", "Apply"]["f:spec"]
    items = spec["f:template"]["f:spec"]["f:containers"]
    assert items == {'k:{"name":"main"}': {".": {}, "f:image": {}, "f:name": {}}}
    assert spec["f:selector"] == {}, "a label selector is owned as a whole"
    sidecar = deployment("d", paused=True)
    sidecar["spec"] = {"template": {"spec": {"containers": [{"name": "sidecar", "image": "s:1"}]}}}
    both = apply(space, sidecar, "two").json()
    names = [item["name"] for item in both["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["main", "sidecar"]
    gone = apply(space, {**sidecar, "spec": {}}, "two").json()
    names = [item["name"] for item in gone["spec"]["template"]["spec"]["containers"]]
    assert names == ["main"]


def test_apply_annotation_only_leaves_the_rest_alone(space: Space) -> None:
    """How the control plane writes its epoch and command on a workload."""
    space.cluster.apps.create_namespaced_deployment(space.name, deployment("d", 2, paused=True))
    mark = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "annotations": {"concertina.dev/epoch": "3"}},
    }
    after = apply(space, mark, "concertina").json()
    assert after["spec"]["replicas"] == 2
    assert owners(after)["concertina", "Apply"] == {
        "f:metadata": {"f:annotations": {"f:concertina.dev/epoch": {}}}
    }


@pytest.mark.parametrize(
    ("change", "query", "code"),
    [
        ({}, {}, 400),
        ({"metadata": {"name": "c", "managedFields": []}}, {"fieldManager": "one"}, 400),
        ({"metadata": {"name": "c", "resourceVersion": "1"}}, {"fieldManager": "one"}, 409),
    ],
    ids=["no manager", "managedFields", "stale version"],
)
def test_apply_that_is_refused(
    space: Space, maps: str, change: Object, query: dict[str, str], code: int
) -> None:
    before = space.cluster.http.get(maps).json()
    body = {**config_map("c", {"a": "7"}), **change}
    answer = send(space, maps, APPLY, body, **query)
    assert answer.status_code in ((400, 422) if code == 400 else (code,))
    assert space.cluster.http.get(maps).json() == before
