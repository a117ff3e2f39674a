"""One cluster's watcher: leads by lease, publishes, wakes the loop, survives what fails."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from apps.clusters import actions
from apps.clusters.models import Cluster
from controlplane.cluster.interface import Invalid, Unreachable, Verb
from controlplane.cluster.resources import NODES, PODS, WATCHED
from tests.fakes import FakeCluster, event
from tests.manifests import make_node_object, make_pod_object
from tests.stack import wait_until
from tests.unit.workers.records import make_cluster_row
from workers import mailbox
from workers.observer import Observer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("broker")]

SILENT = Unreachable("east", Verb.LIST, "nodes", "connection refused.")


class Running:
    """An observer of a fake cluster, and what it queued."""

    def __init__(self, row: Cluster, cluster: FakeCluster, **options: Any) -> None:
        self.queued: list[tuple[str, int]] = []
        self.observer = Observer(
            row,
            connect=options.pop("connect", lambda row: cluster),
            queue=lambda cluster_id, epoch: self.queued.append((cluster_id, epoch)),
            **options,
        )

    def __enter__(self) -> Running:
        self.observer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.observer.stop()
        assert self.observer.join(5)


def newest(row: Cluster) -> mailbox.Observation | None:
    return mailbox.newest(str(row.pk))


def complete(row: Cluster) -> Callable[[], Any]:
    def look() -> mailbox.Observation | None:
        found = newest(row)
        return found if found is not None and found.complete else None

    return look


@pytest.fixture
def row() -> Cluster:
    return make_cluster_row(lease_epoch=0)


def test_it_leads_publishes_and_queues_one_reconcile(row: Cluster) -> None:
    cluster = FakeCluster("east")
    cluster.put(NODES, make_node_object("n1"))
    with Running(row, cluster) as running:
        found = wait_until(complete(row), "a complete snapshot")
        assert found.epoch == 1
        assert [node["name"] for node in found.snapshot["nodes"]] == ["n1"]
        wait_until(lambda: running.queued, "a reconcile")
        assert running.queued == [(str(row.pk), 1)]
        assert running.observer.state.leading
    row.refresh_from_db()
    assert row.lease_epoch == 1
    assert row.lease_holder == ""  # given back: a successor need not wait
    assert row.last_observed_at is not None
    assert row.last_error == ""


def test_an_event_is_published_with_its_channel(row: Cluster) -> None:
    cluster = FakeCluster("east")
    waiting = make_pod_object("urgent")
    cluster.script(PODS, [event("ADDED", waiting, 2001)], [])
    with Running(row, cluster):

        def seen() -> Any:
            found = newest(row)
            return found if found and found.snapshot["pods"] and found.channels else None

        found = wait_until(seen, "the pod's snapshot")
        assert "scheduler" in found.channels
        assert found.first_event_at is not None


def test_a_second_watcher_waits_and_takes_over_with_a_higher_epoch(row: Cluster) -> None:
    first, second = Running(row, FakeCluster("east")), Running(row, FakeCluster("east"))
    with second, first:
        wait_until(complete(row), "a snapshot")
        leaders = [r for r in (first, second) if r.observer.state.leading]
        assert len(leaders) == 1
        epoch = leaders[0].observer.state.epoch
        leaders[0].observer.stop()
        assert leaders[0].observer.join(5)
        other = first if leaders[0] is second else second
        wait_until(lambda: other.observer.state.leading, "the other to take over")
        assert other.observer.state.epoch == epoch + 1


def test_a_lost_lease_ends_the_leading(row: Cluster) -> None:
    with Running(row, FakeCluster("east")) as running:
        wait_until(complete(row), "a snapshot")
        epoch = running.observer.state.epoch
        # it was silent for too long: another process took over and wrote
        with transaction.atomic():  # or the first would renew in between
            Cluster.objects.filter(pk=row.pk).update(lease_expires_at="2000-01-01T00:00:00Z")
            taken = actions.acquire_lease(row.pk, holder="other", duration=timedelta(seconds=60))
        assert taken == epoch + 1
        wait_until(lambda: not running.observer.state.leading, "the loss to be noticed")
        row.refresh_from_db()
        assert (row.lease_holder, row.lease_epoch) == ("other", epoch + 1)


def test_an_unreachable_cluster_is_recorded_and_recovers(row: Cluster) -> None:
    cluster = FakeCluster("east")
    cluster.fail(Verb.LIST, *[SILENT] * 6)
    with Running(row, cluster) as running:

        def said() -> str:
            row.refresh_from_db()
            return row.last_error

        assert "connection refused" in wait_until(said, "the error in the record")
        wait_until(complete(row), "the cluster to answer", timeout_s=30)
        wait_until(lambda: not said(), "the error to be cleared")
        wait_until(lambda: running.queued, "a reconcile")


def test_a_kubeconfig_that_cannot_be_used_is_recorded_and_stops_nobody_else(row: Cluster) -> None:
    def refuse(row: Cluster) -> FakeCluster:
        raise Invalid("bad", Verb.CONNECT, "/nowhere/config", "no such file.", remedy="Correct it.")

    other = make_cluster_row("west", lease_epoch=0)
    with Running(row, FakeCluster(), connect=refuse), Running(other, FakeCluster("west")):
        wait_until(complete(other), "the other cluster's snapshot")

        def said() -> str:
            row.refresh_from_db()
            return row.last_error

        assert "Correct it." in wait_until(said, "the error in the record")
    assert newest(row) is None


def test_a_partial_cluster_is_published_as_such_and_queues_nothing(row: Cluster) -> None:
    cluster = FakeCluster("east")
    cluster.fail(Verb.LIST, *[SILENT] * 1000)
    with Running(row, cluster) as running:
        found = wait_until(lambda: newest(row), "a snapshot")
        assert not found.complete
        assert set(found.missing) == {str(resource) for resource in WATCHED}
        assert running.queued == []


def test_it_wakes_when_the_plan_said_so(row: Cluster) -> None:
    with Running(row, FakeCluster("east")) as running:
        wait_until(lambda: running.queued, "the first reconcile")
        mailbox.reconcile_began(str(row.pk))
        running.queued.clear()
        mailbox.set_next_wake(str(row.pk), time.time() + 0.2)
        running.observer.wake()
        wait_until(lambda: running.queued, "the timer", timeout_s=5)
        assert mailbox.next_wake(str(row.pk)) is None


def test_redis_away_for_a_while_loses_no_event(row: Cluster, broker: Any) -> None:
    cluster = FakeCluster("east")
    with Running(row, cluster) as running:
        wait_until(lambda: running.queued, "the first reconcile")
        mailbox.reconcile_began(str(row.pk))
        running.queued.clear()
        broker.restart()  # without its data
        wait_until(complete(row), "the snapshot to be published again", timeout_s=20)
        assert running.observer.state.epoch == 1  # it kept leading


def test_a_changed_kubeconfig_is_connected_to_anew(row: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("one")
    row.kubeconfig_path = str(path)
    row.save()
    made: list[FakeCluster] = []

    def connect(row: Cluster) -> FakeCluster:
        made.append(FakeCluster("east"))
        return made[-1]

    with Running(row, FakeCluster(), connect=connect) as running:
        wait_until(complete(row), "a snapshot")
        os.utime(path, ns=(1, 1))
        wait_until(lambda: len(made) == 2, "another connection")
        wait_until(lambda: running.observer.state.epoch == 2, "it to lead again")


def test_threads_end(row: Cluster) -> None:
    before = threading.active_count()
    with Running(row, FakeCluster("east")):
        wait_until(complete(row), "a snapshot")
    wait_until(lambda: threading.active_count() <= before, "its threads to end")
