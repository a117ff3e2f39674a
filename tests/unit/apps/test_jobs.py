"""Rows of jobs follow the observed snapshot: counts, phases, policies, ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.training import actions
from apps.training.models import Replica, TrainingJob
from controlplane.engine.snapshot import Pod, Workload
from controlplane.engine.types import PodPhase
from tests import builders
from tests.rows import make_attempt, make_cluster, make_job, make_policy_row

pytestmark = pytest.mark.django_db

AT = datetime.fromtimestamp(builders.NOW, UTC)


def sync(
    *workloads: Workload, pods: list[Pod] | None = None, at: datetime = AT, problems: Any = ()
) -> list[TrainingJob]:
    cluster = Cluster.objects.first() or make_cluster()
    snapshot = builders.make_snapshot(workloads=workloads, pods=pods or [])
    return actions.sync_jobs(cluster, snapshot, problems=problems, at=at)


def whole(workload: Workload) -> list[Pod]:
    return builders.make_replicas(workload, [f"n{i}" for i in range(workload.granted)])


def test_a_new_job() -> None:
    policy = make_policy_row("elastic")
    workload = builders.make_workload(
        "llama", granted=2, shape=builders.make_shape(gpus=8, pods_per_replica=1), queue="research"
    )
    sync(workload, pods=whole(workload))
    job = TrainingJob.objects.get()
    assert str(job) == "Job/ml/llama"
    assert (job.uid, job.team, job.queue) == ("uid-llama", "ml", "research")
    assert (job.priority, job.priority_class) == (100, "training")
    assert (job.policy, job.policy_name, job.policy_error) == (policy, "elastic", "")
    assert (job.accelerator_resource, job.accelerators_per_replica) == ("nvidia.com/gpu", 8)
    assert (job.granted, job.running, job.phase) == (2, 2, "running")
    # Nobody has planned or reported yet: unknown, not 0.
    assert (job.desired, job.productive, job.loss, job.throughput) == (None, None, None, None)
    assert job.created_at.timestamp() == workload.created_at
    replica = Replica.objects.get(index=1)
    assert (replica.pod_name, replica.node_name, replica.ready) == ("llama-1", "n1", True)


def test_nothing_changes_twice(django_assert_num_queries: Any) -> None:
    workload = builders.make_workload(granted=2)
    assert len(sync(workload, pods=whole(workload))) == 1
    cluster = Cluster.objects.get()
    snapshot = builders.make_snapshot(workloads=[workload], pods=whole(workload))
    with django_assert_num_queries(2):  # the jobs and the policies; no lock, no write
        assert actions.sync_jobs(cluster, snapshot, at=AT + timedelta(seconds=5)) == []


@pytest.mark.parametrize(
    ("annotation", "elastic", "error"),
    [
        ("elastic", True, ""),
        (None, False, ""),
        ("gone", False, "There is no elasticity policy 'gone'"),
    ],
)
def test_policy(annotation: str | None, elastic: bool, error: str) -> None:
    make_policy_row("elastic")
    sync(builders.make_workload(policy=annotation))
    job = TrainingJob.objects.get()
    assert (job.policy is not None) is elastic
    assert job.policy_error.startswith(error)
    assert bool(job.policy_error) is bool(error)
    assert job.policy_name == (annotation or "")


def test_an_absent_policy_that_is_made_later() -> None:
    sync(builders.make_workload(policy="later"))
    assert "Known: none yet." in TrainingJob.objects.get().policy_error
    policy = make_policy_row("later")
    sync(builders.make_workload(policy="later"))
    job = TrainingJob.objects.get()
    assert (job.policy, job.policy_error) == (policy, "")


J = builders.make_workload(granted=4)


def pods(*states: str) -> list[Pod]:
    """One pod a replica: r running, s starting (bound), p pending, d deleting, f failed, - none."""
    made = []
    for index, state in enumerate(states):
        if state == "-":
            continue
        pod = builders.make_replicas(J, [None] * index + ["n0"])[-1]
        made.append(
            {
                "r": pod,
                "s": replace(pod, ready=False, phase=PodPhase.PENDING),
                "p": replace(pod, node=None, ready=False, phase=PodPhase.PENDING),
                "d": replace(pod, deleting=True),
                "f": replace(pod, phase=PodPhase.FAILED, ready=False),
            }[state]
        )
    return made


PHASES: list[tuple[str, str, dict[str, Any], dict[str, Any], str, int]] = [
    # name, pods of replicas 0, 1, …; the workload's fields; the row before; phase, running
    ("nothing yet", "----", {}, {}, "pending", 0),
    ("waits for nodes", "pppp", {}, {}, "pending", 0),
    ("bound", "ssss", {}, {}, "starting", 0),
    ("first ones up", "rrss", {}, {"phase": "starting"}, "starting", 2),
    ("all up", "rrrr", {}, {}, "running", 4),
    ("one was killed", "rrrs", {}, {"phase": "running"}, "degraded", 3),
    ("still short", "rrrp", {}, {"phase": "degraded"}, "degraded", 3),
    ("grows", "rrrrss", {"granted": 6}, {"phase": "running", "last_resize_at": AT}, "resizing", 4),
    ("growth takes too long", "rrrrss", {"granted": 6},
     {"phase": "resizing", "last_resize_at": AT - timedelta(seconds=61)}, "degraded", 4),
    ("shrinks", "rrdd", {"granted": 2}, {"phase": "running"}, "resizing", 2),
    ("written, pods not told yet", "rrrr", {"granted": 2}, {"phase": "running"}, "resizing", 2),
    ("planned, not written", "rrrr", {}, {"phase": "running", "desired": 2}, "resizing", 4),
    ("suspended", "----", {"suspended": True}, {"phase": "running"}, "suspended", 0),
    ("granted none", "----", {"granted": 0}, {}, "pending", 0),
    # ray 63566: 4 alive, 10 dead -> 4, never 14
    ("the dead don't run", "rrrrffffffffff", {"granted": 14}, {"phase": "running"}, "degraded", 4),
    # kueue 13117: more pods than granted never count as more than granted
    ("more than granted", "rrrrrr", {"granted": 4}, {"phase": "running"}, "resizing", 4),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "states", "fields", "row", "phase", "running"), PHASES, ids=[p[0] for p in PHASES]
)
def test_phase(
    name: str, states: str, fields: dict[str, Any], row: dict[str, Any], phase: str, running: int
) -> None:
    if row:
        make_job(name="job", uid="uid-job", **row)
    sync(replace(J, **fields), pods=pods(*states))
    job = TrainingJob.objects.get()
    assert (job.phase, job.running) == (phase, running)
    assert job.granted == fields.get("granted", 4)


def test_a_killed_pod_and_the_one_that_took_its_place() -> None:
    dead, alive = pods("f")[0], pods("s")[0]
    sync(J, pods=[replace(dead, name="job-0-old", created_at=builders.NOW - 2000), alive])
    replica = Replica.objects.get()
    assert (replica.pod_name, replica.phase) == ("job-0", "starting")


def test_a_replica_of_two_pods_is_as_far_as_its_last() -> None:
    workload = builders.make_workload(granted=1, shape=builders.make_shape(pods_per_replica=2))
    first, second = (
        builders.make_pod(f"job-0-{n}", node="n0", workload=workload.key, replica_index=0)
        for n in "ab"
    )
    sync(workload, pods=[first])
    assert TrainingJob.objects.get().running == 0
    sync(workload, pods=[first, replace(second, ready=False, phase=PodPhase.PENDING)])
    assert Replica.objects.get().phase == "starting"
    sync(workload, pods=[first, second])
    replica = Replica.objects.get()
    assert [pod["name"] for pod in replica.pods] == ["job-0-a", "job-0-b"]
    assert (replica.phase, TrainingJob.objects.get().running) == ("running", 1)


def test_replicas_that_left_have_no_rows() -> None:
    sync(J, pods=pods(*"rrrr"))
    ids = set(Replica.objects.filter(index__lt=2).values_list("pk", flat=True))
    sync(replace(J, granted=2), pods=pods(*"rr"))
    assert set(Replica.objects.values_list("pk", flat=True)) == ids


@pytest.mark.parametrize(
    ("states", "want"),
    [("----", "succeeded"), ("ff--", "failed"), ("fr", "failed"), ("rrrr", "succeeded")],
)
def test_finished(states: str, want: str) -> None:
    sync(J, pods=pods(*"rrrr"))
    sync(replace(J, finished=True), pods=pods(*states))
    job = TrainingJob.objects.get()
    assert (job.phase, job.finished_at) == (want, AT)
    assert (job.desired, job.granted, job.running, job.productive) == (0, 0, 0, 0)


def test_an_object_that_is_gone_and_one_made_anew_under_its_name() -> None:
    sync(J, pods=pods(*"rrrr"))
    sync(replace(J, uid="second"), pods=pods(*"rr"))
    first, second = TrainingJob.objects.order_by("finished_at", "uid").order_by("-uid")
    assert (first.phase, first.running, first.replicas.count()) == ("deleted", 0, 0)
    assert (second.uid, second.running, second.replicas.count()) == ("second", 2, 2)


def test_a_job_whose_label_was_taken_away_and_put_back_lives_again() -> None:
    sync(J, pods=pods(*"rrrr"))
    sync(builders.make_workload("other"), pods=[])
    assert TrainingJob.objects.get(uid=J.uid).phase == "deleted"
    sync(J, pods=pods(*"rrrr"))
    job = TrainingJob.objects.get(uid=J.uid)
    assert (job.phase, job.finished_at, job.running) == ("running", None, 4)
    assert job.replicas.count() == 4


def test_a_job_that_the_database_refuses_holds_up_no_other() -> None:
    bad = builders.make_workload("bad", granted=1, uid="bad", shape=builders.make_shape(-1))
    written = sync(bad, J, pods=pods(*"rrrr"))
    assert [job.uid for job in written] == [J.uid]
    assert TrainingJob.objects.get().running == 4


def test_a_job_that_cant_be_read_keeps_its_row_and_says_why() -> None:
    sync(J, pods=pods(*"rrrr"))
    problem = {
        "workload": {"kind": "Job", "namespace": "ml", "name": "job"},
        "uid": "uid-job",
        "field": "concertina.dev/pods-per-replica",
        "value": "two",
        "message": "must be a whole number",
    }
    sync(problems=[problem])
    job = TrainingJob.objects.get()
    assert job.policy_error == "concertina.dev/pods-per-replica='two': must be a whole number"
    assert (job.policy, job.phase) == (None, "running")
    sync(problems=[{**problem, "uid": "new", "workload": {**problem["workload"], "name": "b"}}])
    assert TrainingJob.objects.get(uid="new").phase == "pending"


@pytest.mark.parametrize(("silent_s", "want"), [(59, 3), (61, None)])
def test_what_a_silent_trainer_said_is_no_longer_known(silent_s: int, want: int | None) -> None:
    reported = AT - timedelta(seconds=silent_s)
    make_job(name="job", uid="uid-job", productive=3, throughput=9.0, last_report_at=reported)
    sync(J, pods=pods(*"rrrr"))
    job = TrainingJob.objects.get()
    assert job.productive == want
    assert job.throughput == (9.0 if want else None)
    assert job.last_report_at == reported


def test_reports_written_meanwhile_are_not_overwritten() -> None:
    """The rows are read first and written later: only fields of the snapshot are written."""
    make_job(name="job", uid="uid-job", productive=3, last_report_at=AT)
    cluster = Cluster.objects.get()
    [row] = actions.known_jobs(cluster, [])
    TrainingJob.objects.update(committed_steps=70, loss=1.5)
    actions.write_job(row, {"granted": 9}, None, {})
    job = TrainingJob.objects.get()
    assert (job.granted, job.committed_steps, job.loss) == (9, 70, 1.5)


def test_tokens() -> None:
    job = make_job()
    first = actions.issue_job_token(job)
    assert actions.is_job_token(job, first)
    second = actions.issue_job_token(job)
    assert not actions.is_job_token(job, first)
    assert actions.is_job_token(job, second)
    other = make_job(job.cluster, "other")
    assert not actions.is_job_token(other, second)
    assert not any(second in row.digest for row in job.tokens.all())


def test_attempts_stay_when_the_object_goes() -> None:
    sync(J)
    make_attempt(TrainingJob.objects.get())
    sync()
    assert TrainingJob.objects.get().attempts.count() == 1
