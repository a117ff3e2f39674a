"""When a written command counts as done: what the cluster shows and what the trainer confirms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.engine.snapshot import (
    ClusterSnapshot,
    Pod,
    ReplicaShape,
    TrainerReport,
    Workload,
)
from controlplane.engine.types import PodPhase, PreemptionPolicy, WorkloadKey
from workers.verify import Outcome, Written, check, running_replicas

KEY = WorkloadKey("Job", "ml", "llama")
APPLIED_AT = 1000.0
WRITTEN = Written(
    workload=KEY, uid="u", from_replicas=4, to_replicas=2, applied_at=APPLIED_AT, timeout_s=60
)


def make_workload(granted: int = 2, **fields: Any) -> Workload:
    base = Workload(
        key=KEY,
        uid="u",
        resource_version="1",
        generation=1,
        created_at=0,
        managed=True,
        policy="p",
        priority=0,
        priority_class="",
        team="ml",
        queue="",
        shape=ReplicaShape(1, {"nvidia.com/gpu": 8}),
        granted=granted,
        suspended=False,
        finished=False,
        epoch=1,
    )
    return replace(base, **fields)


def make_pod(index: int | None, **fields: Any) -> Pod:
    base = Pod(
        uid=f"p{index}",
        namespace="ml",
        name=f"llama-{index}",
        node="n",
        nominated_node=None,
        phase=PodPhase.RUNNING,
        deleting=False,
        ready=True,
        requests={"nvidia.com/gpu": 8},
        priority=0,
        priority_class="",
        preemption_policy=PreemptionPolicy.NEVER,
        workload=KEY,
        replica_index=index,
        tolerations=(),
        node_selector={},
        created_at=0,
        labels={},
    )
    return replace(base, **fields)


def make_snapshot(
    pods: list[Pod], *workloads: Workload, taken_at: float = 1010.0
) -> ClusterSnapshot:
    return ClusterSnapshot(
        cluster="c",
        taken_at=taken_at,
        complete=True,
        nodes=(),
        pods=tuple(pods),
        workloads=workloads or (make_workload(),),
    )


def report(productive: int | None, at: float = 1005.0) -> TrainerReport:
    return TrainerReport(productive=productive, reported_at=at)


TWO = [make_pod(0), make_pod(1)]
CASES: dict[str, tuple[ClusterSnapshot, TrainerReport | None, float, Outcome, str]] = {
    "pods agree, no trainer": (make_snapshot(TWO), None, 1010, Outcome.DONE, "2 replicas"),
    "pods and trainer agree": (make_snapshot(TWO), report(2), 1010, Outcome.DONE, "the trainer"),
    "the trainer reports no count": (make_snapshot(TWO), report(None), 1010, Outcome.DONE, "2"),
    "the trainer still has four": (
        make_snapshot(TWO),
        report(4),
        1010,
        Outcome.WAIT,
        "works with 4 of 2",
    ),
    "the trainer's word is older than the write": (
        make_snapshot(TWO),
        report(2, at=999),
        1010,
        Outcome.WAIT,
        "not reported since",
    ),
    "a leaving pod is still there": (
        make_snapshot([*TWO, make_pod(2, deleting=True)]),
        None,
        1010,
        Outcome.WAIT,
        "1 pod still leaving",
    ),
    "pods that should leave have not begun to": (
        make_snapshot([*TWO, make_pod(2), make_pod(3)]),
        None,
        1010,
        Outcome.WAIT,
        "2 pods still leaving",
    ),
    "a failed pod that left holds nothing": (
        make_snapshot([*TWO, make_pod(3, phase=PodPhase.FAILED, ready=False)]),
        None,
        1010,
        Outcome.DONE,
        "",
    ),
    "one is not ready": (
        make_snapshot([make_pod(0), make_pod(1, ready=False)]),
        None,
        1010,
        Outcome.WAIT,
        "1 of 2 replicas ready",
    ),
    "time is up": (
        make_snapshot([make_pod(0), make_pod(1, ready=False)]),
        None,
        1061,
        Outcome.TIMED_OUT,
        "Not confirmed within 60 s: 1 of 2 replicas ready",
    ),
    "a resize that the trainer can't acknowledge is never done": (
        make_snapshot(TWO),
        report(4),
        1061,
        Outcome.TIMED_OUT,
        "works with 4 of 2",
    ),
    "the snapshot is older than the write": (
        make_snapshot(TWO, make_workload(4), taken_at=999),
        None,
        1010,
        Outcome.WAIT,
        "older",
    ),
    "the cluster shows the old size a little later": (
        make_snapshot(TWO, make_workload(4)),
        None,
        1010,
        Outcome.WAIT,
        "doesn't show",
    ),
    "somebody else resized it": (
        make_snapshot(TWO, make_workload(3)),
        None,
        1010,
        Outcome.SUPERSEDED,
        "to 3 replicas",
    ),
    "the job finished": (
        make_snapshot(TWO, make_workload(finished=True)),
        None,
        1010,
        Outcome.SUPERSEDED,
        "ended",
    ),
    "another job of that name": (
        make_snapshot(TWO, make_workload(uid="other")),
        None,
        1010,
        Outcome.SUPERSEDED,
        "ended",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_check(name: str) -> None:
    snapshot, trainer, now, want, words = CASES[name]
    found = check(WRITTEN, snapshot, trainer, now)
    assert found.outcome == want
    assert words in found.sentence


@pytest.mark.parametrize(
    ("pods", "per_replica", "want"),
    [
        ([make_pod(0), make_pod(0), make_pod(1), make_pod(1)], 2, 2),
        ([make_pod(0), make_pod(0), make_pod(1)], 2, 1),  # never a part of a replica
        ([make_pod(0), make_pod(0, ready=False)], 2, 0),
        ([make_pod(0), make_pod(1, deleting=True)], 1, 1),
        ([make_pod(0), make_pod(None)], 1, 1),
        ([], 1, 0),
    ],
)
def test_running_replicas(pods: list[Pod], per_replica: int, want: int) -> None:
    workload = make_workload(shape=ReplicaShape(per_replica, {}))
    assert running_replicas(workload, make_snapshot(pods)) == want


@pytest.mark.parametrize(
    ("pods", "trainer", "want"),
    [
        ([], report(4, at=999), Outcome.DONE),  # nobody is left to report
        ([], None, Outcome.DONE),
        ([make_pod(0, deleting=True)], report(4, at=999), Outcome.WAIT),
    ],
)
def test_a_suspended_job_is_done_once_its_pods_have_gone(
    pods: list[Pod], trainer: TrainerReport | None, want: Outcome
) -> None:
    written = replace(WRITTEN, to_replicas=0)
    snapshot = make_snapshot(pods, make_workload(0, suspended=True))
    assert check(written, snapshot, trainer, 1010).outcome is want
