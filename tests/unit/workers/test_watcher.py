"""The watcher process keeps one observer for each enabled cluster, and shows that it lives."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from apps.clusters.models import Cluster
from tests.stack import wait_until
from tests.unit.workers.records import make_cluster_row
from workers.observer import ObserverState
from workers.watcher import Watcher

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("broker")]


class FakeObserver:
    """Remembers that it was started and stopped; can refuse to end."""

    def __init__(self, row: Cluster) -> None:
        self.row = row
        self.state = ObserverState(leading=True, epoch=1, complete=True)
        self.told: list[str] = []
        self.alive = True

    def start(self) -> None:
        self.told.append("start")

    def stop(self) -> None:
        self.told.append("stop")

    def join(self, timeout_s: float) -> bool:
        self.told.append("join")
        return True

    def wake(self) -> None:
        self.told.append("wake")


class Crew:
    """A watcher of fake observers, and all the observers that it ever made."""

    def __init__(self, health_file: Path) -> None:
        self.made: list[FakeObserver] = []
        self.watcher = Watcher(health_file, self.make)

    def make(self, row: Cluster) -> FakeObserver:
        self.made.append(FakeObserver(row))
        return self.made[-1]

    def story(self) -> list[tuple[str, list[str]]]:
        return [(observer.row.name, observer.told) for observer in self.made]


def test_an_observer_that_died_is_replaced(tmp_path: Path) -> None:
    crew = Crew(tmp_path / "health")
    make_cluster_row("east")
    crew.watcher.look()
    crew.made[0].alive = False
    crew.watcher.look()
    assert crew.story() == [("east", ["start", "stop", "join"]), ("east", ["start"])]


def test_clusters_that_come_go_and_change_are_noticed(tmp_path: Path) -> None:
    crew = Crew(tmp_path / "health")
    make_cluster_row("east")
    make_cluster_row("off", enabled=False)
    crew.watcher.look()
    assert crew.story() == [("east", ["start"])]
    crew.watcher.look()
    assert crew.story() == [("east", ["start"])]
    make_cluster_row("west")
    crew.watcher.look()
    assert crew.story() == [("east", ["start"]), ("west", ["start"])]
    Cluster.objects.filter(name="east").update(enabled=False)
    Cluster.objects.filter(name="west").update(kubeconfig_path="/elsewhere")
    crew.watcher.look()
    assert crew.story() == [
        ("east", ["start", "stop", "join"]),
        ("west", ["start", "stop", "join"]),
        ("west", ["start"]),
    ]


def test_it_shows_what_it_observes_and_ends_cleanly(tmp_path: Path) -> None:
    health = tmp_path / "health" / "watcher"
    crew = Crew(health)
    make_cluster_row("east")
    thread = threading.Thread(target=crew.watcher.run)
    thread.start()
    wait_until(health.exists, "a sign of life")
    shown: dict[str, Any] = json.loads(health.read_text())
    assert shown["clusters"]["east"]["leading"] is True
    assert shown["pid"]
    crew.watcher.stop()
    thread.join(3)
    assert not thread.is_alive()
    assert crew.story() == [("east", ["start", "stop", "join"])]
    assert not health.exists()
