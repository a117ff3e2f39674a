"""From a snapshot to a recorded plan: what is decided, what isn't, and what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.clusters.models import CapacitySample, Cluster, Node
from apps.decisions.models import Command, Decision, Plan
from apps.training.models import TrainingJob
from controlplane.cluster import names
from controlplane.cluster.resources import PODS
from tests.manifests import make_job_object, make_pod_object, make_priority_class_object
from tests.unit.workers.observations import publish
from tests.unit.workers.records import make_cluster_row, make_command_row, make_policy_row
from workers import mailbox, reconcile
from workers.reconcile import STALE_S, Skipped, reconcile_once, reconcile_wanted

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("broker")]

NOW = 1_796_083_300.0


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of commands that were queued, once their transaction had committed."""
    found: list[str] = []

    def queue(ids: tuple[str, ...]) -> None:
        assert Command.objects.filter(pk__in=ids).count() == len(ids)
        found.extend(ids)

    monkeypatch.setattr(reconcile, "queue_commands", queue)
    monkeypatch.setattr(reconcile, "queue_secret", lambda job_id: None)
    return found


@pytest.fixture
def row() -> Cluster:
    make_policy_row(min_replicas=2, max_replicas=8, scaling_timeout=0, cooldown=0)
    return make_cluster_row()


def once(row: Cluster, at: float = NOW, epoch: int | None = None) -> Any:
    return reconcile_once(str(row.pk), epoch, clock=lambda: at)


def urgent_pod(gpus: int = 8) -> dict[str, Any]:
    spec = {
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        "priority": 1000,
        "priorityClassName": "serving",
    }
    return make_pod_object("urgent", spec=spec)


def test_a_reclaim_is_recorded_with_its_reason_and_queued_after_the_commit(
    row: Cluster, queued: list[str]
) -> None:
    classes = [make_priority_class_object("serving", 1000)]
    job = make_job_object("llama", parallelism=8)
    publish(row, job, at=NOW, pods=[urgent_pod()], priorityclasses=classes)
    found = once(row)
    assert found.skipped is None
    command = Command.objects.get()
    assert queued == [str(command.pk)]
    assert (command.state, command.from_replicas, command.to_replicas) == ("pending", 8, 7)
    assert command.epoch == row.lease_epoch
    assert command.decision.reason_code == "shrinks_for_priority"
    assert "1000" in command.decision.sentence
    plan = Plan.objects.get()
    assert plan.inputs is not None  # can be replayed
    assert plan.digest == found.plan.digest


def test_projections_show_what_was_observed(row: Cluster, queued: list[str]) -> None:
    publish(row, make_job_object("llama", parallelism=8), at=NOW)
    once(row)
    job = TrainingJob.objects.get()
    assert (job.kind, job.namespace, job.name, job.uid) == ("Job", "ml", "llama", "uid-llama")
    assert (job.granted, job.running, job.productive) == (8, 8, None)
    assert (job.policy_name, job.policy_error) == ("steady", "")
    assert job.replicas.count() == 8
    assert Node.objects.count() == 8
    node = Node.objects.get(name="n0")
    assert node.capacity == {"nvidia.com/gpu": 8}
    sample = CapacitySample.objects.get(resource="nvidia.com/gpu")
    assert sample.total == 64
    assert sample.states.get("used") == 64


def test_the_same_again_is_one_plan_seen_later(row: Cluster, queued: list[str]) -> None:
    job = make_job_object("llama", parallelism=8)
    publish(row, job, at=NOW)
    once(row)
    publish(row, job, at=NOW + 2)
    once(row, at=NOW + 2)
    plan = Plan.objects.get()
    assert plan.last_seen_at > plan.planned_at
    assert queued == []


def test_a_command_in_flight_is_not_given_twice(row: Cluster, queued: list[str]) -> None:
    classes = [make_priority_class_object("serving", 1000)]
    job = make_job_object("llama", parallelism=8)
    for seconds in range(3):
        publish(row, job, at=NOW + seconds, pods=[urgent_pod()], priorityclasses=classes)
        once(row, at=NOW + seconds)
    assert Command.objects.count() == 1
    assert len(queued) == 1


def test_capacity_is_sampled_at_most_once_a_second_and_never_forgotten(
    row: Cluster, queued: list[str]
) -> None:
    job = make_job_object("llama", parallelism=8)

    def sampled(at: float, *pods: dict[str, Any]) -> int:
        publish(row, job, at=at, nodes=9, pods=list(pods))
        once(row, at=at)
        return CapacitySample.objects.count()

    other = make_pod_object("other", node="n8")
    assert sampled(NOW) == 1
    assert sampled(NOW + 0.4, other) == 1  # too soon: it wakes again when it may
    assert mailbox.next_wake(str(row.pk)) == pytest.approx(NOW + 1)
    assert sampled(NOW + 1, other) == 2
    assert sampled(NOW + 3, other) == 2  # nothing changed
    assert sampled(NOW + 20, other) == 3


def test_a_written_command_is_done_when_the_trainer_confirms_it(
    row: Cluster, queued: list[str]
) -> None:
    make_policy_row("pinned", min_replicas=8, max_replicas=8)
    job = make_job_object("llama", parallelism=8, policy="pinned")
    publish(row, job, at=NOW)
    once(row)
    trained = TrainingJob.objects.get()
    moment = datetime.fromtimestamp(NOW, UTC)
    command = make_command_row(
        trained, to=8, from_replicas=6, state="applied", applied_at=moment, created_at=moment
    )

    def state(at: float, productive: int) -> str:
        TrainingJob.objects.update(
            productive=productive, last_report_at=datetime.fromtimestamp(at, UTC)
        )
        publish(row, job, at=at)
        once(row, at=at)
        command.refresh_from_db()
        return command.state

    assert state(NOW + 1, productive=6) == "applied"
    assert mailbox.next_wake(str(row.pk)) == pytest.approx(NOW + 2)  # no event will tell
    assert state(NOW + 2, productive=8) == "done"
    assert "the trainer" in command.result_sentence


def test_a_written_command_that_is_never_confirmed_times_out(
    row: Cluster, queued: list[str]
) -> None:
    policy = make_policy_row("pinned", min_replicas=8, max_replicas=8)
    job = make_job_object("llama", parallelism=8, policy="pinned")
    publish(row, job, at=NOW)
    once(row)
    trained = TrainingJob.objects.get()
    moment = datetime.fromtimestamp(NOW, UTC)
    command = make_command_row(
        trained, to=8, from_replicas=6, state="applied", applied_at=moment, created_at=moment
    )
    late = NOW + policy.fault_scale_down_timeout + 1
    TrainingJob.objects.update(productive=6, last_report_at=datetime.fromtimestamp(late, UTC))
    publish(row, job, at=late)
    once(row, at=late)
    command.refresh_from_db()
    assert command.state == "timed_out"
    assert "the trainer works with 6 of 8 replicas" in command.result_sentence


def test_a_new_job_gets_its_secret_asked_for_once(
    row: Cluster, queued: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(reconcile, "queue_secret", asked.append)
    for seconds in range(3):
        publish(row, make_job_object("llama", parallelism=8), at=NOW + seconds)
        once(row, at=NOW + seconds)
    assert asked == [str(TrainingJob.objects.get().pk)]


def disable(row: Cluster) -> None:
    Cluster.objects.update(enabled=False)


def forget(row: Cluster) -> None:
    mailbox.client().flushall()


def age(row: Cluster) -> None:
    publish(row, make_job_object(), at=NOW - STALE_S - 1, pods=[urgent_pod()])


def tear(row: Cluster) -> None:
    publish(row, make_job_object(parallelism=8), at=NOW, pods=[urgent_pod()], lose=PODS)


def depose(row: Cluster) -> None:
    Cluster.objects.update(lease_epoch=row.lease_epoch + 1)


SKIPS: dict[str, tuple[Callable[[Cluster], None], Skipped]] = {
    "disabled": (disable, Skipped.DISABLED),
    "no snapshot": (forget, Skipped.NO_SNAPSHOT),
    "stale": (age, Skipped.STALE),
    "partial": (tear, Skipped.PARTIAL),
    "old epoch": (depose, Skipped.OLD_EPOCH),
}


@pytest.mark.parametrize("name", SKIPS)
def test_what_is_not_decided_leaves_nothing_behind(
    name: str, row: Cluster, queued: list[str]
) -> None:
    change, want = SKIPS[name]
    publish(row, make_job_object(parallelism=8), at=NOW, pods=[urgent_pod()])
    change(row)
    assert once(row).skipped is want
    assert not Plan.objects.exists()
    assert not Command.objects.exists()
    assert not TrainingJob.objects.exists()
    assert not CapacitySample.objects.exists()
    assert queued == []


def test_a_job_that_names_an_absent_policy_is_explained(row: Cluster, queued: list[str]) -> None:
    publish(row, make_job_object("llama", parallelism=4, policy="nowhere"), at=NOW)
    once(row)
    decision = Decision.objects.get()
    assert decision.reason_code == "policy_not_found"
    assert "nowhere" in decision.sentence
    job = TrainingJob.objects.get()
    assert (job.policy, job.policy_name) == (None, "nowhere")
    assert "nowhere" in job.policy_error
    assert queued == []


def test_malformed_annotations_are_explained(row: Cluster, queued: list[str]) -> None:
    bad = make_job_object("bad", annotations={names.PODS_PER_REPLICA: "several"})
    publish(row, make_job_object("good", parallelism=4), bad, at=NOW, nodes=12)
    once(row)
    assert "several" in TrainingJob.objects.get(name="bad").policy_error
    assert TrainingJob.objects.get(name="good").policy_error == ""
    assert not Command.objects.filter(job__name="bad").exists()


def test_a_policy_that_appears_later_ends_the_error(row: Cluster, queued: list[str]) -> None:
    job = make_job_object("llama", parallelism=4, policy="later")
    publish(row, job, at=NOW)
    once(row)
    make_policy_row("later", min_replicas=4, max_replicas=4)
    publish(row, job, at=NOW + 1)
    once(row, at=NOW + 1)
    found = TrainingJob.objects.get()
    assert found.policy is not None
    assert (found.policy.name, found.policy_error) == ("later", "")


def test_a_deleted_job_is_finished(row: Cluster, queued: list[str]) -> None:
    publish(row, make_job_object("llama", parallelism=4), at=NOW)
    once(row)
    publish(row, at=NOW + 1)
    once(row, at=NOW + 1)
    job = TrainingJob.objects.get()
    assert job.phase == "deleted"
    assert job.finished_at is not None
    assert job.replicas.count() == 0


def test_wanted_while_it_ran_is_done_again_and_only_by_one(
    row: Cluster, queued: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_id, runs = str(row.pk), 0

    def run(cluster_id: str, epoch: int) -> reconcile.Reconciled:
        nonlocal runs
        runs += 1
        if runs == 1:  # meanwhile something changes, and another task comes and goes
            assert mailbox.want_reconcile(cluster_id)
            assert reconcile_wanted(cluster_id, epoch) == []
        return reconcile.Reconciled()

    monkeypatch.setattr(reconcile, "reconcile_once", run)
    assert mailbox.want_reconcile(cluster_id)
    assert len(reconcile_wanted(cluster_id, 3)) == 2
    assert reconcile_wanted(cluster_id, 3) == []  # nothing is wanted any more


def test_the_next_wake_is_told(row: Cluster, queued: list[str]) -> None:
    row.refresh_from_db()
    make_policy_row("slow", min_replicas=2, max_replicas=8, scaling_timeout=60)
    publish(row, make_job_object("llama", parallelism=2, policy="slow"), at=NOW)
    found = once(row)
    assert found.plan.next_wake is not None
    assert mailbox.next_wake(str(row.pk)) == found.plan.next_wake
    assert NOW < found.plan.next_wake <= NOW + 60
    # an hour of history later it grows: the wish survived between cycles
    publish(row, make_job_object("llama", parallelism=2, policy="slow"), at=NOW + 61)
    once(row, at=NOW + 61)
    assert Command.objects.get().to_replicas > 2
