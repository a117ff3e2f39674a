"""The chain as one: a Deployment of high priority takes back what elastic jobs had grown into.

Real sandbox, real watcher, worker and beat, real Valkey; nothing is told to them but objects.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.manifests import (
    make_deployment_object,
    make_job_object,
    make_pod_spec,
    make_priority_class_object,
)
from tests.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODES, GPUS = 32, 8
#: quick to grow, so that the test need not wait for what damping is for
QUICK = {"scaling_timeout": 0.5, "cooldown": 0.5, "scale_up_snooze": 0.0, "min_gain": 0.0}
POLICIES = (
    {
        "name": "by-four",
        "min_replicas": 4,
        "max_replicas": 20,
        "replica_increment_step": 4,
        **QUICK,
    },
    {"name": "by-two", "min_replicas": 2, "max_replicas": 12, "replica_increment_step": 2, **QUICK},
)
VALID = {"wide": {4, 8, 12, 16, 20}, "narrow": {2, 4, 6, 8, 10, 12}}


def elastic_job(name: str, policy: str, priority_class: str, replicas: int) -> dict[str, Any]:
    spec = make_pod_spec(
        GPUS,
        priorityClassName=priority_class,
        restartPolicy="Never",
        terminationGracePeriodSeconds=1,
    )
    job = make_job_object(name, "default", parallelism=replicas, policy=policy, pod_spec=spec)
    job["spec"]["backoffLimit"] = 1000
    return job


def size(stack: Stack, name: str) -> int:
    return int(stack.get("batch/v1", "default", "jobs", name)["spec"]["parallelism"])


def ready_pods(stack: Stack, **labels: str) -> list[dict[str, Any]]:
    """Pods with these labels that are Ready and not leaving."""
    return [
        pod
        for pod in stack.items("v1", "default", "pods")
        if labels.items() <= (pod["metadata"].get("labels") or {}).items()
        and not pod["metadata"].get("deletionTimestamp")
        and any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions") or ()
        )
    ]


def by_index(pods: list[dict[str, Any]]) -> dict[str, str]:
    """Completion index -> uid."""
    note = "batch.kubernetes.io/job-completion-index"
    return {p["metadata"]["annotations"][note]: p["metadata"]["uid"] for p in pods}


def test_reclaim_and_growing_back(tmp_path: Path) -> None:
    with Stack(tmp_path, policies=POLICIES) as stack:
        for name, value in (("serving", 1000), ("research", 200), ("batch", 100)):
            stack.create(
                "scheduling.k8s.io/v1",
                None,
                "priorityclasses",
                make_priority_class_object(name, value),
            )
        stack.create("batch/v1", "default", "jobs", elastic_job("wide", "by-four", "batch", 4))
        stack.create("batch/v1", "default", "jobs", elastic_job("narrow", "by-two", "research", 2))

        def hold_everything() -> bool:
            return (
                size(stack, "wide") == 20
                and size(stack, "narrow") == 12
                and len(ready_pods(stack, app="wide")) == 20
                and len(ready_pods(stack, app="narrow")) == 12
            )

        wait_until(hold_everything, "the jobs to grow into the whole cluster", timeout_s=60)
        before = {name: by_index(ready_pods(stack, app=name)) for name in VALID}
        uids = {n: stack.get("batch/v1", "default", "jobs", n)["metadata"]["uid"] for n in VALID}

        demand = make_deployment_object("chat", "default", replicas=12, priority_class="serving")
        demand["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
        began = time.monotonic()
        stack.create("apps/v1", "default", "deployments", demand)
        wait_until(
            lambda: len(ready_pods(stack, app="chat")) == 12,
            "the Deployment's 12 pods to run",
            timeout_s=5,
        )
        took = time.monotonic() - began

        sizes = {name: size(stack, name) for name in VALID}
        assert all(sizes[name] in VALID[name] for name in VALID), sizes
        assert sum(sizes.values()) == NODES - 12, (sizes, took)
        for name in VALID:  # nothing restarted: who stays is who was there
            job = stack.get("batch/v1", "default", "jobs", name)
            assert job["metadata"]["uid"] == uids[name]
            assert not job["status"].get("failed")
            stayed = by_index(ready_pods(stack, app=name))
            assert stayed == {i: before[name][i] for i in map(str, range(sizes[name]))}

        explain_themselves(stack, sizes)

        stack.delete("apps/v1", "default", "deployments", "chat")
        wait_until(hold_everything, "the jobs to grow back", timeout_s=30)
        stop_quickly(stack)


def explain_themselves(stack: Stack, sizes: dict[str, int]) -> None:
    """The record says, for every job that shrank, from what to what, why, and that it is done."""
    shrunk = [n for n, full in (("wide", 20), ("narrow", 12)) if sizes[n] < full]
    assert shrunk
    for name in shrunk:

        def finished(name: str = name) -> list[dict[str, Any]]:
            return stack.rows(
                """select c.state, c.from_replicas, c.to_replicas, d.reason_code, d.sentence,
                          d.numbers, c.attempts
                   from decisions_command c
                   join decisions_decision d on d.id = c.decision_id
                   join training_trainingjob j on j.id = c.job_id
                   where j.name = ? and c.to_replicas < c.from_replicas and c.state = 'done'
                   order by c.created_at desc""",
                name,
            )

        rows = wait_until(finished, f"the shrink of {name} to be verified", timeout_s=15)
        assert rows[0]["to_replicas"] == sizes[name]
        assert rows[0]["reason_code"]
        assert "1000" in rows[0]["sentence"] + rows[0]["numbers"]  # for the sake of whom
    live_twice = stack.rows(
        """select job_id, count(*) as n from decisions_command
           where state in ('pending', 'applying', 'applied') group by job_id having n > 1"""
    )
    assert live_twice == []


def stop_quickly(stack: Stack) -> None:
    """Every process of ours ends soon after SIGTERM (3 s on a machine that is otherwise idle)."""
    took = {name: stack.end(name) for name in ("watcher", "beat", "worker")}
    assert max(took.values()) < 5, took
