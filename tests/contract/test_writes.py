"""Creating and replacing: conflicts, defaults, validation, generation, subresources, dry run."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.contract.backends import wait_until
from tests.contract.support import (
    Object,
    Space,
    causes,
    config_map,
    deployment,
    job,
    needs,
    pod,
    refused,
    status_of,
)


def test_the_server_sets_identity(space: Space) -> None:
    body = config_map("a", {"k": "v"}, uid="mine", creationTimestamp="2001-01-01T00:00:00Z")
    made = space.cluster.core.create_namespaced_config_map(space.name, body)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made.metadata.uid)
    assert made.metadata.creation_timestamp.year > 2001
    assert made.metadata.namespace == space.name
    assert int(made.metadata.resource_version) > 0


def test_created_twice_is_already_exists(space: Space) -> None:
    space.cluster.core.create_namespaced_config_map(space.name, config_map("a"))
    with pytest.raises(ApiException) as caught:
        space.cluster.core.create_namespaced_config_map(space.name, config_map("a"))
    body = status_of(caught.value)
    assert (body["code"], body["reason"]) == (409, "AlreadyExists")
    assert body["message"] == 'configmaps "a" already exists'


def test_generate_name(space: Space) -> None:
    body = {"metadata": {"generateName": "some-"}}
    made = [space.cluster.core.create_namespaced_config_map(space.name, body) for _ in range(2)]
    names = [item.metadata.name for item in made]
    assert all(re.fullmatch(r"some-[a-z0-9]{5}", name) for name in names)
    assert names[0] != names[1]


def test_namespace_must_exist(space: Space) -> None:
    with pytest.raises(ApiException) as caught:
        space.cluster.core.create_namespaced_config_map("no-such-namespace", config_map("a"))
    assert (caught.value.status, status_of(caught.value)["reason"]) == (404, "NotFound")


def test_stale_replace_is_a_conflict_and_changes_nothing(space: Space) -> None:
    core = space.cluster.core
    first = core.create_namespaced_config_map(space.name, config_map("a", {"k": "1"}))
    first.data = {"k": "2"}
    second = core.replace_namespaced_config_map("a", space.name, first)
    first.data = {"k": "3"}
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("a", space.name, first)
    body = status_of(caught.value)
    assert (body["code"], body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in body["message"]
    now = core.read_namespaced_config_map("a", space.name)
    assert (now.data, now.metadata.resource_version) == (
        {"k": "2"},
        second.metadata.resource_version,
    )


def test_replace_without_a_version_is_unconditional(space: Space) -> None:
    core = space.cluster.core
    core.create_namespaced_config_map(space.name, config_map("a", {"k": "1"}, labels={"x": "y"}))
    replaced = core.replace_namespaced_config_map("a", space.name, config_map("a", {"l": "2"}))
    assert (replaced.data, replaced.metadata.labels) == ({"l": "2"}, None)


def test_replace_with_another_uid_is_a_conflict(space: Space) -> None:
    core = space.cluster.core
    core.create_namespaced_config_map(space.name, config_map("a"))
    body = config_map("a", uid="8c3f6a3e-0000-4000-8000-000000000000")
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("a", space.name, body)
    assert (caught.value.status, status_of(caught.value)["reason"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("method", "path_name", "body"),
    [
        ("PUT", "other", config_map("a")),
        ("PUT", "a", {**config_map("a"), "metadata": {"name": "a", "namespace": "elsewhere"}}),
        ("POST", "", {**config_map("b"), "metadata": {"name": "b", "namespace": "elsewhere"}}),
        ("POST", "", {**config_map("b"), "kind": "Secret"}),
        ("POST", "", {**config_map("b"), "data": {"k": {"not": "a string"}}}),
        ("POST", "", {**config_map("b"), "data": "text"}),
    ],
)
def test_body_that_does_not_fit_the_path_is_400(
    space: Space, method: str, path_name: str, body: Object
) -> None:
    answer = space.cluster.http.request(method, space.path("configmaps", path_name), json=body)
    assert refused(answer) == (400, "BadRequest")


def test_broken_json_is_400(space: Space) -> None:
    headers = {"Content-Type": "application/json"}
    path = space.path("configmaps")
    assert space.cluster.http.post(path, content=b"{", headers=headers).status_code == 400


def test_yaml_is_read_too(space: Space) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  when: '2001-01-01'\n"
    answer = space.cluster.http.post(
        space.path("configmaps"), content=text, headers={"Content-Type": "application/yaml"}
    )
    assert (answer.status_code, answer.json()["data"]) == (201, {"when": "2001-01-01"})


def test_pod_defaults(space: Space) -> None:
    made = space.create_pod(pod("p", gpus=2, schedulerName="nobody"))
    spec, [main] = made.spec, made.spec.containers
    assert (spec.restart_policy, spec.termination_grace_period_seconds) == ("Always", 30)
    assert (spec.dns_policy, spec.service_account_name) == ("ClusterFirst", "default")
    assert (spec.priority, spec.preemption_policy) == (0, "PreemptLowerPriority")
    assert main.image_pull_policy == "IfNotPresent"
    assert main.resources.requests == {"nvidia.com/gpu": "2"}
    assert (made.status.phase, made.status.qos_class) == ("Pending", "BestEffort")
    keys = {(t.key, t.effect, t.toleration_seconds) for t in spec.tolerations}
    assert keys == {
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    }


def test_quantities_are_canonical(space: Space) -> None:
    amounts = {"cpu": 1.5, "memory": "1024Mi", "nvidia.com/gpu": 4}
    body = pod("p", schedulerName="nobody")
    body["spec"]["containers"][0]["resources"] = {"limits": amounts}
    raw = space.cluster.http.post(space.path("pods"), json=body).json()
    want = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "4"}
    assert raw["spec"]["containers"][0]["resources"] == {"limits": want, "requests": want}
    assert raw["status"]["qosClass"] == "Guaranteed"


def test_priority_class_sets_a_pods_priority(space: Space) -> None:
    name = space.priority_class("high", 1000, preemptionPolicy="Never")
    made = space.create_pod(pod("p", priorityClassName=name, schedulerName="nobody"))
    assert (made.spec.priority, made.spec.preemption_policy) == (1000, "Never")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"priorityClassName": "no-such-class"}, "no PriorityClass with name no-such-class was"),
        ({"priority": 5}, "the integer value of priority (5) must not be provided in pod spec"),
    ],
)
def test_priority_that_admission_refuses_is_403(space: Space, spec: Object, message: str) -> None:
    with pytest.raises(ApiException) as caught:
        space.create_pod(pod("p", **spec))
    body = status_of(caught.value)
    assert (body["code"], body["reason"]) == (403, "Forbidden")
    assert message in body["message"]
    assert space.pods() == []


INVALID: list[tuple[str, str, Object, list[str]]] = [
    ("configmaps", "", config_map("Upper_Case"), ["metadata.name"]),
    ("configmaps", "", config_map("a", labels={"k": "not valid!"}), ["metadata.labels"]),
    ("configmaps", "", config_map("a", {"bad key": "v"}), ["data[bad key]"]),
    ("configmaps", "", {"metadata": {}}, ["metadata.name"]),
    ("pods", "", {"metadata": {"name": "p"}, "spec": {"containers": []}}, ["spec.containers"]),
    ("pods", "", pod("p", restartPolicy="Sometimes"), ["spec.restartPolicy"]),
    (
        "pods",
        "",
        pod("p", containers=[{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]),
        ["spec.containers[1].name"],
    ),
    ("pods", "", pod("p", containers=[{"name": "a"}]), ["spec.containers[0].image"]),
    (
        "pods",
        "",
        pod(
            "p",
            containers=[
                {"name": "a", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
            ],
        ),
        ["spec.containers[0].resources.limits"],
    ),
    (
        "pods",
        "",
        pod(
            "p",
            containers=[
                {
                    "name": "a",
                    "image": "i",
                    "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
                }
            ],
        ),
        ["spec.containers[0].resources.requests"],
    ),
    (
        "pods",
        "",
        pod("p", tolerations=[{"key": "k", "operator": "Exists", "value": "v"}]),
        ["spec.tolerations[0].operator"],
    ),
    (
        "jobs",
        "batch",
        job("j", pod_more={"restartPolicy": "Always"}),
        ["spec.template.spec.restartPolicy"],
    ),
    ("jobs", "batch", job("j", parallelism=-1), ["spec.parallelism"]),
    (
        "jobs",
        "batch",
        job("j", completions=-2, backoffLimit=-1),
        ["spec.completions", "spec.backoffLimit"],
    ),
    ("deployments", "apps", deployment("d", -1), ["spec.replicas"]),
    (
        "deployments",
        "apps",
        deployment("d", selector={"matchLabels": {"other": "label"}}),
        ["spec.template.metadata.labels"],
    ),
    (
        "deployments",
        "apps",
        deployment("d", strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
        ["spec.strategy.rollingUpdate.maxUnavailable"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("plural", "group", "body", "fields"), INVALID)
def test_invalid_object_is_422_and_names_the_fields(
    space: Space, plural: str, group: str, body: Object, fields: list[str]
) -> None:
    answer = space.cluster.http.post(space.path(plural, group=group), json=body)
    assert refused(answer) == (422, "Invalid")
    assert set(fields) <= set(causes(answer.json()))
    listed = space.cluster.http.get(space.path(plural, group=group)).json()["items"]
    assert [i for i in listed if i["metadata"]["name"] == body["metadata"].get("name")] == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"spec": {"template": {"spec": {"activeDeadlineSeconds": 5}}}}, "spec.template"),
        ({"spec": {"completions": 9}}, "spec.completions"),
        ({"spec": {"selector": {"matchLabels": {"a": "b"}}}}, "spec.selector"),
    ],
)
def test_what_a_job_may_not_change(space: Space, changes: Object, field: str) -> None:
    batch = space.cluster.batch
    batch.create_namespaced_job(space.name, job("j", completions=2, parallelism=0))
    with pytest.raises(ApiException) as caught:
        batch.patch_namespaced_job("j", space.name, changes)
    assert (caught.value.status, status_of(caught.value)["reason"]) == (422, "Invalid")
    assert field in causes(status_of(caught.value))
    assert batch.read_namespaced_job("j", space.name).metadata.generation in (None, 1)


def test_what_else_may_not_change(space: Space) -> None:
    name = space.priority_class("fixed", 7)
    with pytest.raises(ApiException) as caught:
        space.cluster.scheduling.patch_priority_class(name, {"value": 8})
    assert [field.lower() for field in causes(status_of(caught.value))] == ["value"]
    space.create_pod(pod("p", schedulerName="nobody"))
    with pytest.raises(ApiException) as caught:
        space.cluster.core.patch_namespaced_pod("p", space.name, {"spec": {"nodeName": "n"}})
    assert causes(status_of(caught.value)) == ["spec"]
    space.cluster.apps.create_namespaced_deployment(space.name, deployment("d"))
    with pytest.raises(ApiException) as caught:
        space.cluster.apps.patch_namespaced_deployment(
            "d",
            space.name,
            {
                "spec": {
                    "selector": {"matchLabels": {"app": "e"}},
                    "template": {"metadata": {"labels": {"app": "e"}}},
                }
            },
        )
    assert "spec.selector" in causes(status_of(caught.value))


def test_generation_counts_changes_of_spec(space: Space) -> None:
    apps = space.cluster.apps
    made = apps.create_namespaced_deployment(space.name, deployment("d", paused=True))
    assert made.metadata.generation == 1
    labelled = apps.patch_namespaced_deployment(
        "d", space.name, {"metadata": {"labels": {"a": "b"}}}
    )
    assert labelled.metadata.generation == 1
    scaled = apps.patch_namespaced_deployment("d", space.name, {"spec": {"replicas": 3}})
    assert scaled.metadata.generation == 2


def test_status_is_apart_from_spec(space: Space) -> None:
    core = space.cluster.core
    body = {**pod("p", schedulerName="nobody"), "status": {"phase": "Running", "message": "mine"}}
    made = core.create_namespaced_pod(space.name, body)
    assert (made.status.phase, made.status.message) == ("Pending", None)
    core.patch_namespaced_pod("p", space.name, {"status": {"message": "through spec"}})
    assert core.read_namespaced_pod("p", space.name).status.message is None
    core.patch_namespaced_pod_status(
        "p",
        space.name,
        {"status": {"message": "set"}, "spec": {"activeDeadlineSeconds": 5}},
    )
    now = core.read_namespaced_pod_status("p", space.name)
    assert (now.status.message, now.spec.active_deadline_seconds) == ("set", None)


def test_scale(space: Space) -> None:
    apps = space.cluster.apps
    apps.create_namespaced_deployment(space.name, deployment("d", 2, paused=True))
    scale = apps.read_namespaced_deployment_scale("d", space.name)
    assert (scale.kind, scale.api_version, scale.spec.replicas) == ("Scale", "autoscaling/v1", 2)
    assert scale.status.selector == "app=d"

    def replaced() -> Any:
        """The real controller's own writes may come between our read and our write."""
        fresh = apps.read_namespaced_deployment_scale("d", space.name)
        fresh.spec.replicas = 4
        try:
            return apps.replace_namespaced_deployment_scale("d", space.name, fresh)
        except ApiException as error:
            if error.status != 409:
                raise
            return None

    assert wait_until(replaced, "the scale to be replaced").spec.replicas == 4
    patched = apps.patch_namespaced_deployment_scale("d", space.name, {"spec": {"replicas": 5}})
    assert patched.spec.replicas == 5
    now = apps.read_namespaced_deployment("d", space.name)
    assert (now.spec.replicas, now.metadata.generation) == (5, 3)
    scale.spec.replicas = 6  # read before the patch
    with pytest.raises(ApiException) as caught:
        apps.replace_namespaced_deployment_scale("d", space.name, scale)
    assert (caught.value.status, status_of(caught.value)["reason"]) == (409, "Conflict")


def test_scale_below_zero_is_422(space: Space) -> None:
    space.cluster.apps.create_namespaced_deployment(space.name, deployment("d", paused=True))
    with pytest.raises(ApiException) as caught:
        space.cluster.apps.patch_namespaced_deployment_scale(
            "d", space.name, {"spec": {"replicas": -1}}
        )
    assert caught.value.status == 422


def test_scale_of_what_has_none_is_404(space: Space) -> None:
    space.cluster.batch.create_namespaced_job(space.name, job("j", parallelism=0))
    path = space.path("jobs", "j", group="batch", sub="scale")
    assert space.cluster.http.get(path).status_code == 404


def test_dry_run_stores_nothing(space: Space) -> None:
    core, everything = space.cluster.core, "All"
    made = core.create_namespaced_config_map(space.name, config_map("a"), dry_run=everything)
    assert made.metadata.uid
    space.gone(core.read_namespaced_config_map, "a", space.name)
    core.create_namespaced_config_map(space.name, config_map("a", {"k": "1"}))
    patched = core.patch_namespaced_config_map("a", space.name, {"data": {"k": "2"}}, dry_run="All")
    assert patched.data == {"k": "2"}
    assert core.read_namespaced_config_map("a", space.name).data == {"k": "1"}
    core.delete_namespaced_config_map("a", space.name, dry_run=everything)
    assert core.read_namespaced_config_map("a", space.name).data == {"k": "1"}


def test_dry_run_of_something_else_is_refused(space: Space) -> None:
    answer = space.cluster.http.post(
        space.path("configmaps"), json=config_map("a"), params={"dryRun": "Some"}
    )
    assert answer.status_code in (400, 422)


def test_unknown_fields_are_dropped_or_refused(space: Space) -> None:
    body = {**config_map("a"), "nothing": 1, "metadata": {"name": "a", "other": 2}}
    path = space.path("configmaps")
    made = space.cluster.http.post(path, json=body).json()
    assert "nothing" not in made
    assert "other" not in made["metadata"]
    needs(space.cluster, 25, "fieldValidation")
    body["metadata"]["name"] = "b"
    answer = space.cluster.http.post(path, json=body, params={"fieldValidation": "Strict"})
    assert refused(answer) == (400, "BadRequest")
    assert 'unknown field "metadata.other"' in answer.json()["message"]
    warned = space.cluster.http.post(path, json=body, params={"fieldValidation": "Warn"})
    assert 'unknown field \\"nothing\\"' in warned.headers["warning"]


def test_secret_string_data_is_write_only(space: Space) -> None:
    made = space.cluster.core.create_namespaced_secret(
        space.name, {"metadata": {"name": "s"}, "stringData": {"KEY": "value"}}
    )
    assert (made.data, made.string_data, made.type) == ({"KEY": "dmFsdWU="}, None, "Opaque")


def test_lease_renews_by_version(space: Space) -> None:
    leases = space.cluster.coordination
    spec: dict[str, Any] = {"holderIdentity": "a", "leaseDurationSeconds": 15}
    spec["renewTime"] = "2026-01-01T00:00:00.123456Z"
    made = leases.create_namespaced_lease(space.name, {"metadata": {"name": "l"}, "spec": spec})
    assert made.spec.renew_time.microsecond == 123456
    made.spec.holder_identity = "b"
    leases.replace_namespaced_lease("l", space.name, made)
    with pytest.raises(ApiException) as caught:
        leases.replace_namespaced_lease("l", space.name, made)
    assert caught.value.status == 409
    blind = {"metadata": {"name": "l"}, "spec": {**spec, "holderIdentity": "c"}}
    with pytest.raises(ApiException) as caught:
        leases.replace_namespaced_lease("l", space.name, blind)
    assert causes(status_of(caught.value)) == ["metadata.resourceVersion"]


def test_node_taints_and_cordon(space: Space) -> None:
    node = space.node("n", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    core = space.cluster.core
    core.patch_node(node, {"spec": {"unschedulable": True}})
    assert core.read_node(node).spec.unschedulable is True
    core.patch_node(node, {"spec": {"unschedulable": None}})
    assert core.read_node(node).spec.unschedulable is None
    with pytest.raises(ApiException) as caught:
        core.patch_node(node, {"spec": {"taints": [{"key": "k", "effect": "Sometimes"}]}})
    # its own name for it: the server's taint rules say metadata
    assert "metadata.taints[0].effect" in causes(status_of(caught.value))


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_method_that_is_not_served(space: Space, method: str) -> None:
    path = "/api/v1/pods" if method != "POST" else space.path("pods", "p")
    answer = space.cluster.http.request(method, path, json={})
    assert answer.status_code in (404, 405)
