"""The store: versions, watches in the process, history, and its journal."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from controlplane.sandbox.clock import ManualClock
from controlplane.sandbox.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
)
from controlplane.sandbox.journal import DataError, Journal
from controlplane.sandbox.kinds import CONFIGMAP, POD, PRIORITYCLASS
from controlplane.sandbox.objects import clone
from controlplane.sandbox.selectors import FieldSelector, LabelSelector
from controlplane.sandbox.store import Store


def make_store(**options: Any) -> Store:
    return Store(clock=ManualClock(), **options)


def make_map(name: str = "c", **data: str) -> Any:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


def make_pod(name: str = "p", **spec: Any) -> Any:
    containers = [{"name": "a", "image": "i:1"}]
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": containers, **spec},
    }


def names(events: list[Any]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"]["name"]) for event in events]


async def test_versions_rise_over_all_kinds() -> None:
    store = make_store()
    first = store.create(CONFIGMAP, make_map())
    second = store.create("Pod", make_pod())
    assert [o["metadata"]["resourceVersion"] for o in (first, second)] == [
        str(store.resource_version - 1),
        str(store.resource_version),
    ]


async def test_errors() -> None:
    store = make_store()
    made = store.create(CONFIGMAP, make_map(a="1"))
    with pytest.raises(AlreadyExists, match='configmaps "c" already exists'):
        store.create(CONFIGMAP, make_map())
    with pytest.raises(NotFound, match='configmaps "x" not found'):
        store.get(CONFIGMAP, "default", "x")
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        store.create(CONFIGMAP, {"metadata": {"name": "c", "namespace": "nowhere"}})
    with pytest.raises(Invalid, match=r"spec.containers: Required value"):
        store.create(POD, {"metadata": {"name": "p", "namespace": "default"}, "spec": {}})
    changed = {**clone(made), "data": {"a": "2"}}
    store.update(CONFIGMAP, changed)
    with pytest.raises(Conflict, match="the object has been modified"):
        store.update(CONFIGMAP, changed)
    assert store.get(CONFIGMAP, "default", "c")["data"] == {"a": "2"}


async def test_a_callers_object_is_neither_kept_nor_changed() -> None:
    store = make_store()
    mine = make_pod()
    before = clone(mine)
    store.create(POD, mine)
    assert mine == before
    mine["spec"]["containers"][0]["image"] = "other"
    assert store.get(POD, "default", "p")["spec"]["containers"][0]["image"] == "i:1"


async def test_a_write_that_changes_nothing_keeps_the_version() -> None:
    store = make_store()
    made = store.create(CONFIGMAP, make_map(a="1"))
    version = store.resource_version
    assert store.update(CONFIGMAP, made) is made
    assert store.resource_version == version


async def test_watch_follows_and_resumes() -> None:
    store = make_store()
    watch = store.watch(CONFIGMAP)
    everything = store.watch()
    since = store.resource_version
    made = store.create(CONFIGMAP, make_map(a="1"))
    store.create(POD, make_pod())
    store.update(CONFIGMAP, {**clone(made), "data": {}})
    store.delete(CONFIGMAP, "default", "c")
    want = [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]
    assert names(watch.drain()) == want
    assert names(store.watch(CONFIGMAP, since).drain()) == want
    assert names(everything.drain()) == [want[0], ("ADDED", "p"), *want[1:]]
    assert names(store.watch(None, since).drain()) == [want[0], ("ADDED", "p"), *want[1:]]


async def test_closed_watch_ends_its_iteration() -> None:
    store = make_store()
    watch = store.watch(CONFIGMAP)
    store.create(CONFIGMAP, make_map())
    watch.close()
    store.create(CONFIGMAP, make_map("later"))
    assert names([event async for event in watch]) == [("ADDED", "c")]


async def test_history_is_bounded_by_kind() -> None:
    store = make_store(history=3)
    since = store.resource_version
    pod = store.create(POD, make_pod())
    for index in range(4):
        store.create(CONFIGMAP, make_map(f"c{index}"))
    with pytest.raises(Expired, match="too old resource version"):
        store.watch(CONFIGMAP, since)
    assert names(store.watch(POD, since).drain()) == [("ADDED", "p")]
    after_pod = int(pod["metadata"]["resourceVersion"]) + 1
    assert len(store.watch(CONFIGMAP, after_pod).drain()) == 3


async def test_slow_watcher_is_dropped() -> None:
    store = make_store()
    watch = store.watch(CONFIGMAP, limit=2)
    for index in range(3):
        store.create(CONFIGMAP, make_map(f"c{index}"))
    with pytest.raises(Expired, match="fell 2 events behind"):
        await anext(watch)


async def test_expire_ends_running_watches_when_asked() -> None:
    store = make_store()
    watch = store.watch(CONFIGMAP)
    store.expire(watches=True)
    with pytest.raises(Expired):
        await anext(watch)


async def test_selectors() -> None:
    store = make_store()
    for name, node in (("a", "n1"), ("b", "n2")):
        store.create(POD, make_pod(name, nodeName=node))
    found = store.list(POD, labels=LabelSelector.parse("app in (a,b)"))
    assert [pod["metadata"]["name"] for pod in found] == ["a", "b"]
    [found] = store.list(POD, fields=FieldSelector.parse("spec.nodeName=n2", POD))
    assert found["metadata"]["name"] == "b"
    assert store.list(POD, "kube-system") == []


async def test_grace_is_of_the_clock() -> None:
    clock = ManualClock(1_000_000_000)
    store = Store(clock=clock)
    store.create(POD, make_pod(nodeName="n", terminationGracePeriodSeconds=10))
    gone = store.delete(POD, "default", "p")
    assert gone["metadata"]["deletionTimestamp"] == "2001-09-09T01:46:50Z"
    sooner = store.delete(POD, "default", "p", grace_seconds=4)
    assert sooner["metadata"]["deletionTimestamp"] == "2001-09-09T01:46:44Z"
    later = store.delete(POD, "default", "p", grace_seconds=60)
    assert later["metadata"]["deletionGracePeriodSeconds"] == 4
    assert store.find(POD, "default", "p") is not None
    store.delete(POD, "default", "p", grace_seconds=0)
    assert store.find(POD, "default", "p") is None


async def test_default_priority_class_is_used_and_is_one() -> None:
    store = make_store()
    body = {"metadata": {"name": "usual"}, "value": 50, "globalDefault": True}
    store.create(PRIORITYCLASS, body)
    pod = store.create(POD, make_pod())
    assert (pod["spec"]["priority"], pod["spec"]["priorityClassName"]) == (50, "usual")
    with pytest.raises(Forbidden, match="Only one default can exist"):
        store.create(PRIORITYCLASS, {**body, "metadata": {"name": "other"}})


# -- the journal ---------------------------------------------------------------------------------


def contents(store: Store) -> tuple[int, list[Any]]:
    kinds = ("Namespace", "PriorityClass", "ConfigMap", "Pod")
    return store.resource_version, [store.list(kind) for kind in kinds]


async def test_state_survives_without_a_close(tmp_path: Path) -> None:
    """As after kill -9: nothing is flushed or closed."""
    journal = Journal(tmp_path)
    store = make_store(journal=journal)
    made = store.create(CONFIGMAP, make_map(a="ü"))
    store.update(CONFIGMAP, {**clone(made), "data": {"a": "2"}})
    store.create(CONFIGMAP, make_map("gone"))
    store.delete(CONFIGMAP, "default", "gone")
    want = contents(store)
    os.close(journal._lock)  # a dead process holds no lock
    again = make_store(journal=Journal(tmp_path))
    assert contents(again) == want
    with pytest.raises(Expired):
        again.watch(CONFIGMAP, want[0] - 1)
    assert again.watch(CONFIGMAP, want[0]).drain() == []


async def test_torn_last_line_is_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    store = make_store(journal=journal)
    store.create(CONFIGMAP, make_map("whole"))
    want = contents(store)
    store.create(CONFIGMAP, make_map("torn"))
    os.close(journal._lock)
    log = tmp_path / "changes.jsonl"
    log.write_bytes(log.read_bytes()[:-20])
    again = make_store(journal=Journal(tmp_path))
    assert contents(again) == want
    again.create(CONFIGMAP, make_map("next"))
    again.close()
    last = make_store(journal=Journal(tmp_path))
    assert [c["metadata"]["name"] for c in last.list(CONFIGMAP)] == ["next", "whole"]


async def test_log_is_compacted(tmp_path: Path) -> None:
    store = make_store(journal=Journal(tmp_path, compact_bytes=10_000))
    made = store.create(CONFIGMAP, make_map())
    for index in range(500):
        made = store.update(CONFIGMAP, {**clone(made), "data": {"n": str(index)}})
    want = contents(store)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.jsonl"))
    assert size < 40_000, "500 versions of 300 bytes are not kept"
    store.close()
    assert contents(make_store(journal=Journal(tmp_path))) == want


async def test_damage_elsewhere_is_an_error(tmp_path: Path) -> None:
    store = make_store(journal=Journal(tmp_path))
    store.close()
    snapshot = tmp_path / "objects.jsonl"
    lines = snapshot.read_text().splitlines()
    snapshot.write_text("\n".join([lines[0], "{broken", *lines[1:]]) + "\n")
    with pytest.raises(DataError, match=r"objects.jsonl is damaged at line 2: remove its folder"):
        make_store(journal=Journal(tmp_path))


async def test_other_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "objects.jsonl").write_text(json.dumps({"format": 99, "rv": 1}) + "\n")
    with pytest.raises(DataError, match="format 99"):
        make_store(journal=Journal(tmp_path))


async def test_a_folder_has_one_user(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    with pytest.raises(DataError, match="in use by another sandbox"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"can't use .*file"):
        Journal(tmp_path / "file")
