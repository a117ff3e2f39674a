"""Deletion: grace, preconditions, finalizers, owners, collections, eviction, namespaces."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.contract.backends import wait_until
from tests.contract.support import (
    Object,
    Space,
    brief,
    causes,
    config_map,
    job,
    needs,
    pod,
    refused,
    status_of,
    watching,
)


def bound_pod(space: Space, name: str = "p", **spec: Any) -> Any:
    """A pod on a node, which only the kubelet (the test) lets go."""
    node = space.node(f"node-{name}")
    made = space.create_pod(pod(name, schedulerName="nobody", **spec))
    space.bind(name, node)
    return made


def owner(obj: Any, kind: str = "ConfigMap", api_version: str = "v1", **more: Any) -> Object:
    reference = {"apiVersion": api_version, "kind": kind, "name": obj.metadata.name}
    return {**reference, "uid": obj.metadata.uid, **more}


def test_bound_pod_ends_gracefully(space: Space) -> None:
    core = space.cluster.core
    bound_pod(space)
    since = core.list_namespaced_pod(space.name).metadata.resource_version
    answered = core.delete_namespaced_pod("p", space.name)
    assert answered.metadata.deletion_grace_period_seconds == 30
    still = core.read_namespaced_pod("p", space.name)
    assert still.metadata.deletion_timestamp is not None
    space.remove("p")
    space.gone(core.read_namespaced_pod, "p", space.name)
    with watching(space.cluster, space.path("pods"), resourceVersion=since) as events:
        seen = brief([next(events)])
        while seen[-1][0] != "DELETED":
            seen += brief([next(events)])
    assert seen[0] == ("MODIFIED", "p"), "its deletion began"
    assert {name for _, name in seen} == {"p"}


@pytest.mark.parametrize(
    ("spec", "asked", "want"),
    [({}, None, 30), ({"terminationGracePeriodSeconds": 7}, None, 7), ({}, 3, 3)],
)
def test_grace_period(space: Space, spec: Object, asked: int | None, want: int) -> None:
    bound_pod(space, **spec)
    query = {} if asked is None else {"grace_period_seconds": asked}
    answered = space.cluster.core.delete_namespaced_pod("p", space.name, **query)
    assert answered.metadata.deletion_grace_period_seconds == want


def test_grace_period_is_only_ever_shortened(space: Space) -> None:
    core = space.cluster.core
    bound_pod(space)

    def grace(seconds: int) -> int:
        core.delete_namespaced_pod("p", space.name, grace_period_seconds=seconds)
        found = core.read_namespaced_pod("p", space.name)
        return found.metadata.deletion_grace_period_seconds

    assert [grace(20), grace(5), grace(60)] == [20, 5, 5]


def test_pod_without_a_node_goes_at_once(space: Space) -> None:
    space.create_pod(pod("p", schedulerName="nobody"))
    space.cluster.core.delete_namespaced_pod("p", space.name)
    space.gone(space.cluster.core.read_namespaced_pod, "p", space.name, seconds=1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_goes_at_once(space: Space, phase: str) -> None:
    bound_pod(space)
    space.finish("p", phase)
    space.cluster.core.delete_namespaced_pod("p", space.name)
    space.gone(space.cluster.core.read_namespaced_pod, "p", space.name, seconds=1)


def test_answer_names_what_went(space: Space) -> None:
    core = space.cluster.core
    made = core.create_namespaced_config_map(space.name, config_map("c"))
    answer = space.cluster.http.delete(space.path("configmaps", "c"))
    body = answer.json()
    assert (answer.status_code, body["kind"], body["status"]) == (200, "Status", "Success")
    assert body["details"] == {"name": "c", "kind": "configmaps", "uid": made.metadata.uid}
    again = space.cluster.http.delete(space.path("configmaps", "c"))
    assert refused(again) == (404, "NotFound")


@pytest.mark.parametrize(
    "preconditions",
    [{"uid": "8c3f6a3e-0000-4000-8000-000000000000"}, {"resourceVersion": "1"}],
    ids=str,
)
def test_preconditions(space: Space, preconditions: Object) -> None:
    core = space.cluster.core
    core.create_namespaced_config_map(space.name, config_map("c"))
    with pytest.raises(ApiException) as caught:
        core.delete_namespaced_config_map("c", space.name, body={"preconditions": preconditions})
    assert (caught.value.status, status_of(caught.value)["reason"]) == (409, "Conflict")
    found = core.read_namespaced_config_map("c", space.name)
    good = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
    core.delete_namespaced_config_map("c", space.name, body={"preconditions": good})


def test_finalizer_holds_an_object(space: Space) -> None:
    core = space.cluster.core
    body = config_map("c", finalizers=["example.com/hold"])
    core.create_namespaced_config_map(space.name, body)
    core.delete_namespaced_config_map("c", space.name)
    held = core.read_namespaced_config_map("c", space.name)
    assert held.metadata.deletion_timestamp is not None
    with pytest.raises(ApiException) as caught:
        core.patch_namespaced_config_map(
            "c", space.name, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
        )
    assert set(causes(status_of(caught.value))) == {"metadata.finalizers"}
    core.patch_namespaced_config_map("c", space.name, {"metadata": {"finalizers": None}})
    space.gone(core.read_namespaced_config_map, "c", space.name, seconds=1)


def test_owner_deletion_takes_dependents(space: Space) -> None:
    core = space.cluster.core
    parent = core.create_namespaced_config_map(space.name, config_map("parent"))
    child = core.create_namespaced_config_map(
        space.name, config_map("child", ownerReferences=[owner(parent)])
    )
    core.create_namespaced_config_map(
        space.name, config_map("grandchild", ownerReferences=[owner(child)])
    )
    core.delete_namespaced_config_map("parent", space.name)
    for name in ("child", "grandchild"):
        space.gone(core.read_namespaced_config_map, name, space.name)


def test_dependent_of_two_owners_stays_while_one_does(space: Space) -> None:
    core = space.cluster.core
    one = core.create_namespaced_config_map(space.name, config_map("one"))
    two = core.create_namespaced_config_map(space.name, config_map("two"))
    references = [owner(one), owner(two)]
    core.create_namespaced_config_map(space.name, config_map("child", ownerReferences=references))
    core.delete_namespaced_config_map("one", space.name)

    def left() -> bool:
        child = core.read_namespaced_config_map("child", space.name)
        return [o.name for o in child.metadata.owner_references] == ["two"]

    wait_until(left, "the reference to the owner that went is gone")
    core.delete_namespaced_config_map("two", space.name)
    space.gone(core.read_namespaced_config_map, "child", space.name)


def test_orphans_stay(space: Space) -> None:
    core = space.cluster.core
    parent = core.create_namespaced_config_map(space.name, config_map("parent"))
    core.create_namespaced_config_map(
        space.name, config_map("child", ownerReferences=[owner(parent)])
    )
    core.delete_namespaced_config_map("parent", space.name, propagation_policy="Orphan")
    space.gone(core.read_namespaced_config_map, "parent", space.name)
    assert core.read_namespaced_config_map("child", space.name).metadata.owner_references is None


def test_foreground_deletion_waits_for_dependents(space: Space) -> None:
    core = space.cluster.core
    parent = core.create_namespaced_config_map(space.name, config_map("parent"))
    reference = owner(parent, blockOwnerDeletion=True)
    body = config_map("child", ownerReferences=[reference], finalizers=["example.com/hold"])
    core.create_namespaced_config_map(space.name, body)
    core.delete_namespaced_config_map("parent", space.name, propagation_policy="Foreground")
    held = core.read_namespaced_config_map("parent", space.name)
    assert held.metadata.finalizers == ["foregroundDeletion"]
    wait_until(
        lambda: core.read_namespaced_config_map("child", space.name).metadata.deletion_timestamp,
        "the dependent is being deleted",
    )
    assert core.read_namespaced_config_map("parent", space.name).metadata.deletion_timestamp
    core.patch_namespaced_config_map("child", space.name, {"metadata": {"finalizers": None}})
    space.gone(core.read_namespaced_config_map, "parent", space.name)


def test_foreground_deletion_spares_what_another_owner_holds(space: Space) -> None:
    core = space.cluster.core
    one = core.create_namespaced_config_map(space.name, config_map("one"))
    two = core.create_namespaced_config_map(space.name, config_map("two"))
    references = [owner(one, blockOwnerDeletion=True), owner(two)]
    core.create_namespaced_config_map(space.name, config_map("child", ownerReferences=references))
    core.delete_namespaced_config_map("one", space.name, propagation_policy="Foreground")
    space.gone(core.read_namespaced_config_map, "one", space.name)
    child = core.read_namespaced_config_map("child", space.name)
    assert [o.name for o in child.metadata.owner_references] == ["two"]


def test_dependent_of_an_absent_owner_goes(space: Space) -> None:
    core = space.cluster.core
    parent = core.create_namespaced_config_map(space.name, config_map("parent"))
    core.delete_namespaced_config_map("parent", space.name)
    core.create_namespaced_config_map(
        space.name, config_map("late", ownerReferences=[owner(parent)])
    )
    space.gone(core.read_namespaced_config_map, "late", space.name)


@pytest.mark.parametrize(
    ("propagation", "pods_stay"), [(None, True), ("Background", False), ("Foreground", False)]
)
def test_jobs_orphan_their_pods_unless_told(
    space: Space, propagation: str | None, pods_stay: bool
) -> None:
    """batch/v1 kept the old default; kubectl asks for Background."""
    batch, core = space.cluster.batch, space.cluster.core
    batch.create_namespaced_job(space.name, job("j", pod_more={"schedulerName": "nobody"}))
    [made] = wait_until(lambda: space.pods(), "the job's pod")
    query = {} if propagation is None else {"propagation_policy": propagation}
    batch.delete_namespaced_job("j", space.name, **query)
    space.gone(batch.read_namespaced_job, "j", space.name)
    name = made.metadata.name
    if pods_stay:
        assert core.read_namespaced_pod(name, space.name).metadata.owner_references is None
    else:
        space.gone(core.read_namespaced_pod, name, space.name)


def test_collection(space: Space) -> None:
    core = space.cluster.core
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        core.create_namespaced_config_map(space.name, config_map(name, labels={"color": color}))
    core.delete_collection_namespaced_config_map(space.name, label_selector="color=red")
    left = core.list_namespaced_config_map(space.name, label_selector="color").items
    assert [item.metadata.name for item in left] == ["c"]


def test_bad_options_are_refused(space: Space) -> None:
    space.cluster.core.create_namespaced_config_map(space.name, config_map("c"))
    answer = space.cluster.http.request(
        "DELETE", space.path("configmaps", "c"), json={"propagationPolicy": "Sideways"}
    )
    assert answer.status_code in (400, 422)
    space.cluster.core.read_namespaced_config_map("c", space.name)


def test_eviction(space: Space) -> None:
    needs(space.cluster, 22, "policy/v1 eviction")
    core = space.cluster.core
    bound_pod(space)
    eviction: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    path = space.path("pods", "p", sub="eviction")
    tried = space.cluster.http.post(path, json=eviction, params={"dryRun": "All"})
    assert tried.status_code == 201
    assert core.read_namespaced_pod("p", space.name).metadata.deletion_timestamp is None
    body = {**eviction, "deleteOptions": {"gracePeriodSeconds": 9}}
    core.create_namespaced_pod_eviction("p", space.name, body)
    found = core.read_namespaced_pod("p", space.name)
    assert found.metadata.deletion_grace_period_seconds == 9
    missing = {**eviction, "metadata": {"name": "nothing"}}
    answer = space.cluster.http.post(space.path("pods", "nothing", sub="eviction"), json=missing)
    assert refused(answer) == (404, "NotFound")
    answer = space.cluster.http.post(path, json=missing)
    assert refused(answer) == (400, "BadRequest")


def test_pod_is_bound_once(space: Space) -> None:
    bound_pod(space)
    other = space.node("other")
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": other}}
    path = space.path("pods", "p", sub="binding")
    answer = space.cluster.http.post(path, json={**binding, "apiVersion": "v1"})
    assert refused(answer) == (409, "Conflict")
    found = space.cluster.core.read_namespaced_pod("p", space.name)
    conditions = {c.type: c.status for c in found.status.conditions}
    assert conditions == {"PodScheduled": "True"}
    assert found.spec.node_name != other


def test_namespace_goes_with_what_it_holds(space: Space) -> None:
    core = space.cluster.core
    name = f"{space.name}-inner"
    core.create_namespace({"metadata": {"name": name}})
    core.create_namespaced_config_map(name, config_map("held", finalizers=["example.com/hold"]))
    core.create_namespaced_config_map(name, config_map("free"))
    answered = space.cluster.http.delete(f"/api/v1/namespaces/{name}").json()
    assert (answered["kind"], answered["status"]["phase"]) == ("Namespace", "Terminating")
    assert core.read_namespace(name).status.phase == "Terminating"
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_config_map(name, config_map("late"))
    assert (caught.value.status, status_of(caught.value)["reason"]) == (403, "Forbidden")
    space.gone(core.read_namespaced_config_map, "free", name)
    core.patch_namespaced_config_map("held", name, {"metadata": {"finalizers": None}})
    space.gone(core.read_namespace, name)
