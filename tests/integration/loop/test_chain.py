"""The chain as processes: Secrets that pods wait for, reclaims that never wait, signals."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane import wiring
from controlplane.cluster.interface import ClusterAddress, NotFound
from tests.manifests import (
    make_deployment_object,
    make_job_object,
    make_pod_spec,
    make_priority_class_object,
)
from tests.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

QUICK = {"scaling_timeout": 0.0, "cooldown": 0.0, "scale_up_snooze": 0.0, "min_gain": 0.0}
POLICIES = (
    {"name": "fixed", "min_replicas": 2, "max_replicas": 2, **QUICK},
    {"name": "wide", "min_replicas": 4, "max_replicas": 32, "replica_increment_step": 4, **QUICK},
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for the module: each test has jobs of its own, and the fleet has room for them."""
    with Stack(tmp_path_factory.mktemp("stack"), policies=POLICIES) as stack:
        yield stack


def pods(stack: Stack, app: str, phase: str = "Running") -> list[dict[str, Any]]:
    return [
        pod
        for pod in stack.items("v1", "default", "pods")
        if (pod["metadata"].get("labels") or {}).get("app") == app
        and pod["status"].get("phase") == phase
        and not pod["metadata"].get("deletionTimestamp")
    ]


def token_in(stack: Stack, name: str) -> str:
    answer = stack.api.get(stack.path("v1", "default", "secrets", name))
    if answer.status_code == 404:
        return ""
    return base64.b64decode(answer.json()["data"]["CONCERTINA_TOKEN"]).decode()


def test_pods_wait_for_the_secret_and_get_it_again_when_it_is_lost(stack: Stack) -> None:
    spec = make_pod_spec(8, restartPolicy="Never", terminationGracePeriodSeconds=1)
    spec["containers"][0]["envFrom"] = [{"secretRef": {"name": "llama-concertina"}}]
    job = make_job_object("llama", "default", parallelism=2, policy="fixed", pod_spec=spec)
    stack.create("batch/v1", "default", "jobs", job)
    wait_until(lambda: len(pods(stack, "llama")) == 2, "the pods to start")
    first = token_in(stack, "llama-concertina")
    assert first
    stack.delete("v1", "default", "secrets", "llama-concertina")
    second = wait_until(
        lambda: token_in(stack, "llama-concertina"), "the Secret to be written again", timeout_s=45
    )
    assert second != first
    rows = stack.rows("select revoked_at from training_jobtoken order by created_at")
    assert [row["revoked_at"] is None for row in rows] == [False, True]
    # it goes with its job
    stack.delete("batch/v1", "default", "jobs", "llama")
    wait_until(lambda: not token_in(stack, "llama-concertina"), "the Secret to go")


def test_a_signal_reaches_a_pod_of_a_sandbox(stack: Stack) -> None:
    spec = make_pod_spec(8, restartPolicy="Never", terminationGracePeriodSeconds=1)
    job = make_job_object("struck", "default", parallelism=2, policy="fixed", pod_spec=spec)
    job["spec"]["backoffLimit"] = 100
    stack.create("batch/v1", "default", "jobs", job)
    victim = wait_until(lambda: pods(stack, "struck"), "a pod to run")[0]["metadata"]

    class Row:
        """As much of a Cluster row as a connection needs."""

        name, kubeconfig_path, context, in_cluster = "sandbox", str(stack.kubeconfig), "", False

    wiring.signal_pod(Row(), "default", victim["name"], "KILL")
    wait_until(
        lambda: victim["uid"] not in [p["metadata"]["uid"] for p in pods(stack, "struck")],
        "the pod to fail",
    )
    wait_until(lambda: len(pods(stack, "struck")) == 2, "the Job to replace it")
    with pytest.raises(NotFound):
        wiring.signal_pod(Row(), "default", "nobody", "KILL")
    wiring.cluster_for(Row()).close()
    wiring.forget()
    assert wiring.address_of(Row()) == ClusterAddress("sandbox", str(stack.kubeconfig))
    stack.delete("batch/v1", "default", "jobs", "struck")
    wait_until(lambda: not pods(stack, "struck"), "its pods to go")


def test_a_reclaim_does_not_wait_for_a_growth_under_way(stack: Stack) -> None:
    stack.create(
        "scheduling.k8s.io/v1", None, "priorityclasses", make_priority_class_object("serving", 1000)
    )
    spec = make_pod_spec(8, restartPolicy="Never", terminationGracePeriodSeconds=1)
    job = make_job_object("greedy", "default", parallelism=4, policy="wide", pod_spec=spec)
    stack.create("batch/v1", "default", "jobs", job)

    def size() -> int:
        return int(stack.get("batch/v1", "default", "jobs", "greedy")["spec"]["parallelism"])

    wait_until(lambda: size() == 32, "the growth to be written")
    # its pods still boot: the growth is not confirmed
    demand = make_deployment_object("chat", "default", replicas=8, priority_class="serving")
    stack.create("apps/v1", "default", "deployments", demand)
    wait_until(lambda: size() <= 24, "the growth to be turned round", timeout_s=5)
    wait_until(lambda: len(pods(stack, "chat")) == 8, "the Deployment's pods to run", timeout_s=10)
    assert size() == 24
    commands = stack.rows(
        "select state, from_replicas, to_replicas from decisions_command order by created_at"
    )
    assert [(c["from_replicas"], c["to_replicas"]) for c in commands] == [(4, 32), (32, 24)]
