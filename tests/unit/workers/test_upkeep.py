"""The safety net finds lost commands; the broom takes what is old and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.clusters.models import CapacitySample, Cluster
from apps.decisions.models import Command, Plan
from apps.training.models import (
    InflowHour,
    JobEvent,
    NodeFault,
    RunAttempt,
    ScalingPoint,
    ThroughputSample,
)
from tests.unit.workers.records import AT, make_cluster_row, make_command_row, make_job_row
from workers import mailbox, upkeep
from workers.tasks import loop

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("broker")]


@pytest.mark.parametrize(
    ("state", "age_s", "enabled", "want"),
    [
        ("pending", 9, True, True),
        ("applying", 9, True, True),
        ("pending", 2, True, False),  # its task is on its way
        ("applied", 9, True, False),  # waits for the cluster, not for a worker
        ("done", 9, True, False),
        ("pending", 9, False, False),
    ],
)
def test_abandoned(state: str, age_s: float, enabled: bool, want: bool) -> None:
    job = make_job_row(make_cluster_row(enabled=enabled))
    ended = {"finished_at": AT} if state == "done" else {}
    applied = {"applied_at": AT} if state == "applied" else {}
    command = make_command_row(job, state=state, **ended, **applied)
    found = upkeep.abandoned(AT + timedelta(seconds=age_s))
    assert found == ([str(command.pk)] if want else [])


def test_tick_queues_each_enabled_cluster_once_and_lost_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(loop.reconcile, "delay", lambda *a: sent.append(("reconcile", *a)))
    monkeypatch.setattr(loop.carry_out, "delay", lambda *a: sent.append(("carry_out", *a)))
    row = make_cluster_row()
    make_cluster_row("off", enabled=False)
    command = make_command_row(make_job_row(row))
    upkeep.tick(AT + timedelta(minutes=1))
    upkeep.tick(AT)
    assert sent == [("reconcile", str(row.pk), 3), ("carry_out", str(command.pk))]
    assert mailbox.is_wanted(str(row.pk))


def test_prune_takes_what_is_old_and_nothing_else() -> None:
    row = make_cluster_row()
    job = make_job_row(row)
    decided = make_command_row(job, state="done", finished_at=AT).decision.plan
    idle = make_plan(row, 2)
    attempt = RunAttempt.objects.create(job=job, attempt="a", started_at=AT)
    for hours in (0, 24 * 6, 24 * 8):
        at = AT + timedelta(hours=hours)
        CapacitySample.objects.create(cluster=row, at=at, resource="r", total=0, states={})
        ThroughputSample.objects.create(job=job, attempt=attempt, sequence=hours, at=at, step=1)
        ScalingPoint.objects.create(
            job=job, replicas=1 + hours, samples=1, samples_per_s=1.0, updated_at=at
        )
    for days in (0, 730):
        at = AT - timedelta(days=days)
        NodeFault.objects.create(cluster=row, job=job, node_name="n0", cause="node_gone", at=at)
        InflowHour.objects.create(cluster=row, resource="r", hour=at, inflow=0.0)
    gone = upkeep.prune(AT + timedelta(days=8))
    assert gone == {
        "capacity": 1, "throughput": 1, "scaling": 1, "events": 0, "faults": 1, "inflow": 1,
        "plans": 1, "decided": 0,
    }  # fmt: skip
    assert not Plan.objects.filter(pk=idle.pk).exists()
    assert Plan.objects.filter(pk=decided.pk).exists()  # what was done is remembered longer
    JobEvent.objects.create(job=job, at=AT, kind="straggler", sentence="Replica a is slower.")
    later = upkeep.prune(AT + timedelta(days=91))
    assert (later["decided"], later["events"]) == (1, 1)
    assert not Command.objects.exists()


def test_inflow_is_recorded_for_every_cluster() -> None:
    for name in ("east", "west"):
        row = make_cluster_row(name)
        for minutes in range(0, 60, 10):
            at = AT + timedelta(minutes=minutes)
            CapacitySample.objects.create(cluster=row, at=at, resource="r", total=0, states={})
    assert upkeep.record_inflow(AT + timedelta(hours=1)) == 2
    assert upkeep.record_inflow(AT + timedelta(hours=1)) == 0


def make_plan(row: Cluster, number: int) -> Plan:
    return Plan.objects.create(
        cluster=row,
        number=number,
        digest="0" * 64,
        engine_version="1",
        planned_at=AT,
        last_seen_at=AT,
        lease_epoch=3,
    )
