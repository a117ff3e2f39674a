"""The chain as processes, with faults: killed workers, dead clusters, absent policies."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster import names
from tests.manifests import make_job_object, make_pod_spec
from tests.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

QUICK = {"scaling_timeout": 0.0, "cooldown": 0.0, "scale_up_snooze": 0.0, "min_gain": 0.0}
POLICY = {"name": "small", "min_replicas": 2, "max_replicas": 4, **QUICK}
#: run in a process of its own, as an administrator's change of the policy
RAISE_MAXIMUM = """
import django
django.setup()
from apps.elasticity.models import ElasticityPolicy
ElasticityPolicy.objects.filter(name="small").update(max_replicas=6)
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, policies=(POLICY,)) as stack:
        yield stack


def elastic_job(name: str = "llama", **fields: Any) -> dict[str, Any]:
    spec = make_pod_spec(8, restartPolicy="Never", terminationGracePeriodSeconds=1)
    fields = {"policy": "small", "parallelism": 2, **fields}
    return make_job_object(name, "default", pod_spec=spec, **fields)


def read(stack: Stack, name: str = "llama") -> dict[str, Any]:
    found: dict[str, Any] = stack.get("batch/v1", "default", "jobs", name)
    return found


def size(stack: Stack, name: str = "llama") -> int:
    return int(read(stack, name)["spec"]["parallelism"])


def commands(stack: Stack, state: str = "") -> list[dict[str, Any]]:
    return stack.rows(
        "select * from decisions_command where state = ? or ? = '' order by created_at",
        state,
        state,
    )


def grown_to_four(stack: Stack) -> None:
    stack.create("batch/v1", "default", "jobs", elastic_job())
    wait_until(lambda: size(stack) == 4, "the job to grow to its maximum", timeout_s=30)
    wait_until(
        lambda: not [c for c in commands(stack) if c["finished_at"] is None],
        "every command to be verified",
        timeout_s=30,
    )


def freeze(stack: Stack, name: str) -> None:
    os.kill(stack.processes[name].pid, signal.SIGSTOP)


def thaw(stack: Stack, name: str) -> None:
    os.kill(stack.processes[name].pid, signal.SIGCONT)


def test_a_worker_killed_before_its_write(stack: Stack) -> None:
    grown_to_four(stack)
    freeze(stack, "sandbox")
    try:
        stack.run("-c", RAISE_MAXIMUM)
        wait_until(lambda: commands(stack, "applying"), "a command to be begun", timeout_s=20)
        stack.kill("worker")
    finally:
        thaw(stack, "sandbox")
    assert size(stack) == 4
    stack.launch("worker")
    wait_until(lambda: size(stack) == 6, "another worker to carry it out", timeout_s=30)
    (command,) = [c for c in commands(stack) if c["to_replicas"] == 6]
    assert command["attempts"] >= 2


def test_a_worker_killed_between_its_write_and_its_record(stack: Stack) -> None:
    grown_to_four(stack)
    generation = read(stack)["metadata"]["generation"]
    freeze(stack, "sandbox")
    lock = sqlite3.connect(stack.database, isolation_level=None, timeout=10)
    try:
        stack.run("-c", RAISE_MAXIMUM)
        wait_until(lambda: commands(stack, "applying"), "a command to be begun", timeout_s=20)
        lock.execute("BEGIN IMMEDIATE")  # from here on the worker can't record anything
        thaw(stack, "sandbox")
        wait_until(lambda: size(stack) == 6, "the write to reach the cluster", timeout_s=20)
        stack.kill("worker")
    finally:
        thaw(stack, "sandbox")
        lock.close()
    (command,) = commands(stack, "applying")
    assert read(stack)["metadata"]["annotations"][names.COMMAND].replace("-", "") == command["id"]
    stack.launch("worker")
    wait_until(
        lambda: [c for c in commands(stack) if c["id"] == command["id"] and c["state"] == "done"],
        "the command to be found applied, and verified",
        timeout_s=40,
    )
    (after,) = [c for c in commands(stack) if c["id"] == command["id"]]
    assert after["attempts"] >= 2
    assert read(stack)["metadata"]["generation"] == generation + 1  # written once
    assert size(stack) == 6


def test_a_watcher_killed_is_succeeded_with_a_higher_epoch(stack: Stack) -> None:
    grown_to_four(stack)
    (before,) = stack.rows("select lease_epoch from clusters_cluster")
    stack.kill("watcher")
    stack.launch("watcher")

    def taken_over() -> bool:
        (now,) = stack.rows("select lease_epoch from clusters_cluster")
        return bool(now["lease_epoch"] > before["lease_epoch"])

    wait_until(taken_over, "the lease to run out and be taken", timeout_s=40)
    stack.run("-c", RAISE_MAXIMUM)
    wait_until(lambda: size(stack) == 6, "the successor to lead", timeout_s=30)
    notes = read(stack)["metadata"]["annotations"]
    assert int(notes[names.EPOCH]) == before["lease_epoch"] + 1


def test_a_dead_cluster_is_explained_and_holds_up_no_other(stack: Stack, tmp_path: Path) -> None:
    dead = tmp_path / "dead-kubeconfig"
    text = stack.kubeconfig.read_text()
    dead.write_text(text.replace(f":{stack.sandbox_port}", ":1"))
    stack.run(
        "-c",
        f"""
import django
django.setup()
from apps.clusters.models import Cluster
Cluster.objects.create(name="dead", kubeconfig_path={str(dead)!r})
""",
    )

    def error() -> str:
        (row,) = stack.rows("select last_error from clusters_cluster where name = 'dead'")
        return str(row["last_error"])

    message = wait_until(error, "the error in the record", timeout_s=20)
    assert "on cluster dead" in message
    assert "Check the address" in message
    grown_to_four(stack)
    (row,) = stack.rows("select * from clusters_cluster where name = 'sandbox'")
    assert row["last_error"] == ""
    plans = (
        "select count(*) as n from decisions_plan p join clusters_cluster c on c.id = cluster_id"
    )
    assert stack.rows(f"{plans} where c.name = 'dead'")[0]["n"] == 0


def test_a_job_that_names_an_absent_policy_is_explained_and_left_alone(stack: Stack) -> None:
    stack.create("batch/v1", "default", "jobs", elastic_job("lost", policy="no-such-policy"))
    bad = {names.PODS_PER_REPLICA: "several"}
    stack.create("batch/v1", "default", "jobs", elastic_job("bad", annotations=bad))
    grown_to_four(stack)  # the others go on

    def explained(name: str) -> str:
        rows = stack.rows("select policy_error from training_trainingjob where name = ?", name)
        return str(rows[0]["policy_error"]) if rows else ""

    assert "no-such-policy" in wait_until(lambda: explained("lost"), "the reason for lost")
    assert "several" in wait_until(lambda: explained("bad"), "the reason for bad")
    assert (size(stack, "lost"), size(stack, "bad")) == (2, 2)


def test_the_sandbox_restarted_loses_nothing(stack: Stack) -> None:
    grown_to_four(stack)
    stack.kill("sandbox")
    wait_until(
        lambda: stack.rows("select last_error from clusters_cluster")[0]["last_error"],
        "the loss to be recorded",
        timeout_s=20,
    )
    stack.launch("sandbox")
    wait_until(
        lambda: not stack.rows("select last_error from clusters_cluster")[0]["last_error"],
        "the cluster to be observed again",
        timeout_s=30,
    )
    stack.run("-c", RAISE_MAXIMUM)
    wait_until(lambda: size(stack) == 6, "the loop to go on", timeout_s=30)
