"""The record's past comes back into the next plan: windows, faults, failures, refused binds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apps.clusters.models import Cluster, ClusterSettings
from apps.decisions.models import Command, Decision, Plan
from apps.training.models import NodeFault, TrainingJob
from tests.manifests import make_job_object, make_pod_object, make_priority_class_object
from tests.unit.workers.observations import publish
from tests.unit.workers.records import make_cluster_row, make_command_row, make_policy_row
from workers import mailbox, reconcile
from workers.reconcile import reconcile_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("broker")]

NOW = 1_796_083_300.0
QUICK = {"scaling_timeout": 0, "cooldown": 0, "scale_up_snooze": 0}


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW + seconds, UTC)


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(reconcile, "queue_commands", lambda ids: None)
    monkeypatch.setattr(reconcile, "queue_secret", lambda job_id: None)
    return make_cluster_row()


def once(row: Cluster, *jobs: dict[str, Any], at: float = 0, **seen: Any) -> None:
    publish(row, *jobs, at=NOW + at, **seen)
    reconcile_once(str(row.pk), clock=lambda: NOW + at)


def test_a_window_of_time_bounds_a_job_and_wakes_the_loop_when_it_ends(row: Cluster) -> None:
    began = moment(-3600)
    window = {
        "name": "day", "from": f"{began:%H:%M}", "until": f"{moment(3600):%H:%M}",
        "timezone": "UTC", "max_replicas": 4,
    }  # fmt: skip
    make_policy_row(min_replicas=2, max_replicas=8, schedule=[window], **QUICK)
    once(row, make_job_object("llama", parallelism=6))
    command = Command.objects.get()
    assert (command.from_replicas, command.to_replicas) == (6, 4)
    assert command.decision.reason_code == "shrinks_to_schedule"
    Command.objects.update(state="done", finished_at=moment(1))
    once(row, make_job_object("llama", parallelism=4), at=2)
    ends = moment(3600).replace(second=0, microsecond=0)
    assert mailbox.next_wake(str(row.pk)) == ends.timestamp()
    once(row, make_job_object("llama", parallelism=4), at=3600)
    assert Command.objects.order_by("created_at").last().to_replicas == 8


def test_a_node_that_hurt_jobs_gets_nothing_new(row: Cluster) -> None:
    make_policy_row(min_replicas=2, max_replicas=8, **QUICK)
    job = make_job_object("llama", parallelism=2)
    once(row, job, nodes=2)
    for ago in (300, 200, 100):
        NodeFault.objects.create(
            cluster=row, job=TrainingJob.objects.get(), node_name="n2", cause="node_not_ready",
            at=moment(-ago),
        )  # fmt: skip
    once(row, job, nodes=4, at=5)
    assert [(note["subject"], note["code"]) for note in Plan.objects.first().notices] == [
        ("Node/n2", "repeat_offender")
    ]
    command = Command.objects.get()
    assert (command.from_replicas, command.to_replicas) == (2, 3)  # n3 only


def test_a_resize_that_failed_is_tried_again_later_and_later(row: Cluster) -> None:
    make_policy_row(min_replicas=2, max_replicas=8, **QUICK)
    job = make_job_object("llama", parallelism=2)
    once(row, job, nodes=2)
    trained = TrainingJob.objects.get()
    for ago in (200, 90):
        make_command_row(
            trained, to=4, from_replicas=2, state="timed_out", applied_at=moment(-ago - 9),
            finished_at=moment(-ago), created_at=moment(-ago - 10),
        )  # fmt: skip
    once(row, job, at=5)  # 120 s after the second
    last = Decision.objects.order_by("-at").first()
    assert (last.reason_code, last.numbers["failures"]) == ("backing_off", 2)
    assert mailbox.next_wake(str(row.pk)) <= NOW + 30
    assert Command.objects.count() == 2
    once(row, job, at=30)
    assert Command.objects.filter(state="pending").get().to_replicas == 8


def test_a_pod_that_is_never_bound_gives_its_place_back(row: Cluster) -> None:
    """KAI-Scheduler 2075, through the record: each cycle reads what the last one wrote."""
    ClusterSettings.objects.create(cluster=row, bind_timeout_s=60)
    spec = {
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        "priority": 1000,
        "priorityClassName": "serving",
    }
    seen: dict[str, Any] = {
        "pods": [make_pod_object("refused", spec=spec)],
        "priorityclasses": [make_priority_class_object("serving", 1000)],
        "nodes": 1,
    }
    found = []
    for at in range(0, 200, 20):
        once(row, at=at, **seen)
        [waiting] = Plan.objects.order_by("-number").first().pending
        found.append(waiting["reason"]["code"])
    assert found == ["fits"] * 3 + ["bind_back_off"] * 3 + ["fits"] * 3 + ["bind_back_off"]
