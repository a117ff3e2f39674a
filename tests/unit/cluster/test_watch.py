"""A source delivers the newest state whatever its watch does: time-outs, 410, replays, silence."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

import pytest

from controlplane.cluster.backoff import Backoff
from controlplane.cluster.interface import (
    ClusterError,
    EventType,
    Forbidden,
    Gone,
    Manifest,
    Resource,
    Unreachable,
    Verb,
    WatchEvent,
)
from controlplane.cluster.resources import PODS
from controlplane.cluster.watch import Source, SourceGroup, is_replay, list_all
from tests.fakes import FakeCluster, event
from tests.manifests import make_pod_object

GONE = Gone("fake", Verb.WATCH, "pods", "too old resource version: 5 (1000)")
SILENT = Unreachable("fake", Verb.WATCH, "pods", "connection refused.")


@dataclass
class Recorder:
    """A sink that remembers what it was told and when it was last told so."""

    told: list[tuple[str, object]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def replace(self, resource: Resource, items: list[Manifest]) -> None:
        self._note("replace", sorted(i["metadata"]["name"] for i in items))

    def apply(self, resource: Resource, event: WatchEvent) -> None:
        self._note(event.type.value, event.object["metadata"]["name"])

    def alive(self, resource: Resource) -> None:
        self._note("alive", None)

    def lost(self, resource: Resource, error: ClusterError) -> None:
        self._note("lost", type(error).__name__)

    def _note(self, what: str, detail: object) -> None:
        with self.changed:
            self.told.append((what, detail))
            self.changed.notify_all()

    def wait_for(self, want: list[tuple[str, object]]) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.told[: len(want)] == want, timeout=5)
        assert self.told[: len(want)] == want


def pod(name: str) -> Manifest:
    return make_pod_object(name)


BOOKMARK = WatchEvent(EventType.BOOKMARK, {"metadata": {"resourceVersion": "2000"}}, "2000")

CASES = {
    "a watch that ends by itself is resumed without listing again": (
        [[event("ADDED", pod("a"), 1001)], [event("MODIFIED", pod("a"), 1002)]],
        [("replace", []), ("alive", None), ("ADDED", "a"), ("alive", None), ("MODIFIED", "a")],
        ["pods@1000", "pods@1001"],
    ),
    "a bookmark moves the version to resume from": (
        [[BOOKMARK], []],
        [("replace", []), ("alive", None), ("alive", None), ("alive", None)],
        ["pods@1000", "pods@2000"],
    ),
    "410 as an ERROR event lists again": (
        [[event("ADDED", pod("a"), 1001), GONE], []],
        [("replace", []), ("alive", None), ("ADDED", "a"), ("replace", []), ("alive", None)],
        ["pods@1000", "pods@1000"],
    ),
    "replayed events are dropped: only the latest state counts": (
        [
            [event("ADDED", pod("a"), 1005), event("DELETED", pod("a"), 1006)],
            [event("ADDED", pod("a"), 1005), event("ADDED", pod("b"), 1007)],
        ],
        [
            ("replace", []),
            ("alive", None),
            ("ADDED", "a"),
            ("DELETED", "a"),
            ("alive", None),
            ("ADDED", "b"),
        ],
        ["pods@1000", "pods@1006"],
    ),
    "a broken connection says so, then resumes": (
        [[event("ADDED", pod("a"), 1001), SILENT], []],
        [
            ("replace", []),
            ("alive", None),
            ("ADDED", "a"),
            ("lost", "Unreachable"),
            ("alive", None),
        ],
        ["pods@1000", "pods@1001"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_source(name: str) -> None:
    script, want, want_watches = CASES[name]
    cluster, sink = FakeCluster(), Recorder()
    cluster.script(PODS, *script)
    source = Source(cluster, PODS, sink, backoff=quick())
    source.start()
    sink.wait_for(want)
    source.stop()
    assert source.join(2)
    watches = [what for verb, what in cluster.calls if verb is Verb.WATCH]
    assert watches[: len(want_watches)] == want_watches


def test_410_as_a_status_lists_again() -> None:
    cluster, sink = FakeCluster(), Recorder()
    cluster.fail(Verb.WATCH, GONE)
    source = Source(cluster, PODS, sink, backoff=quick())
    source.start()
    sink.wait_for([("replace", []), ("replace", []), ("alive", None)])
    source.stop()
    assert source.join(2)


def test_a_cluster_that_refuses_is_tried_again_until_it_answers() -> None:
    cluster, sink = FakeCluster(), Recorder()
    forbidden = Forbidden("fake", Verb.LIST, "pods", "no.")
    cluster.fail(Verb.LIST, SILENT, SILENT, forbidden)
    source = Source(cluster, PODS, sink, backoff=quick())
    source.start()
    sink.wait_for(
        [
            ("lost", "Unreachable"),
            ("lost", "Unreachable"),
            ("lost", "Forbidden"),
            ("replace", []),
            ("alive", None),
        ]
    )
    source.stop()
    assert source.join(2)


def test_a_defect_in_the_sink_is_reported_and_the_source_goes_on() -> None:
    cluster = FakeCluster()

    class Broken(Recorder):
        def replace(self, resource: Resource, items: list[Manifest]) -> None:
            super().replace(resource, items)
            if len(self.told) == 1:
                raise KeyError("metadata")

    sink = Broken()
    source = Source(cluster, PODS, sink, backoff=quick())
    source.start()
    sink.wait_for([("replace", []), ("lost", "Unreachable"), ("replace", []), ("alive", None)])
    source.stop()
    assert source.join(2)


def test_a_group_of_blocked_watches_stops_within_two_seconds() -> None:
    sources = []
    sinks = []
    for _ in range(6):
        sinks.append(Recorder())
        sources.append(Source(FakeCluster(), PODS, sinks[-1], backoff=quick()))
    group = SourceGroup(sources)
    group.start()
    for sink in sinks:
        sink.wait_for([("replace", []), ("alive", None)])
    began = time.monotonic()
    assert group.stop(2.0)
    assert time.monotonic() - began < 2


def test_list_all_follows_pages() -> None:
    cluster = FakeCluster()
    cluster.put(PODS, *(pod(f"p{i:04}") for i in range(1203)))
    items, version = list_all(cluster, PODS)
    assert len(items) == 1203
    assert version == str(1000 + 1203)
    assert cluster.count(Verb.LIST) == 3


@pytest.mark.parametrize(
    ("version", "seen", "want"),
    [("5", "5", True), ("4", "5", True), ("10", "9", False), ("", "5", False), ("x", "y", False)],
)
def test_is_replay(version: str, seen: str, want: bool) -> None:
    assert is_replay(version, seen) is want


def test_backoff_grows_to_its_most_and_starts_again() -> None:
    top = Backoff(first=1, most=8, least=0.5, rng=Highest())
    assert [top.next() for _ in range(6)] == [1, 2, 4, 8, 8, 8]
    top.reset()
    assert top.next() == 1
    assert Backoff(first=0.1, least=0.5, rng=Highest()).next() == 0.5


class Highest(random.Random):
    """Always the upper end of a range."""

    def uniform(self, a: float, b: float) -> float:
        return b


def quick() -> Backoff:
    return Backoff(first=0.001, most=0.01, least=0.001)
