"""Watches: order, resumption, selectors, bookmarks, expiry."""

from __future__ import annotations

from typing import Any

from tests.contract.support import Space, brief, config_map, needs, take, watching


def make(space: Space, name: str, **labels: str) -> Any:
    return space.cluster.core.create_namespaced_config_map(
        space.name, config_map(name, {"n": "0"}, labels={"of": "test", **labels})
    )


def label(space: Space, name: str, **labels: str | None) -> Any:
    return space.cluster.core.patch_namespaced_config_map(
        name, space.name, {"metadata": {"labels": labels}}
    )


def version(space: Space) -> str:
    return space.cluster.core.list_namespaced_config_map(space.name).metadata.resource_version


def test_events_follow_each_other(space: Space) -> None:
    path, since = space.path("configmaps"), version(space)
    with watching(space.cluster, path, resourceVersion=since, labelSelector="of=test") as events:
        made = make(space, "a")
        changed = label(space, "a", color="red")
        space.cluster.core.delete_namespaced_config_map("a", space.name)
        make(space, "b")
        seen = take(events, 4)
    want = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    assert brief(seen) == want
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(versions)
    assert versions[0] == int(made.metadata.resource_version)
    assert versions[1] == int(changed.metadata.resource_version)
    assert versions[2] > versions[1], "a deletion has a version of its own"
    assert seen[2]["object"]["metadata"]["labels"]["color"] == "red"
    assert (seen[0]["object"]["kind"], seen[0]["object"]["apiVersion"]) == ("ConfigMap", "v1")


def test_resumes_after_a_version(space: Space) -> None:
    make(space, "a")
    second = make(space, "b").metadata.resource_version
    make(space, "c")
    label(space, "a", color="red")
    path = space.path("configmaps")
    with watching(space.cluster, path, resourceVersion=second, labelSelector="of=test") as events:
        assert brief(take(events, 2)) == [("ADDED", "c"), ("MODIFIED", "a")]


def test_without_a_version_begins_with_what_there_is(space: Space) -> None:
    make(space, "a")
    make(space, "b")
    for query in ({}, {"resourceVersion": "0"}):
        with watching(
            space.cluster, space.path("configmaps"), labelSelector="of=test", **query
        ) as events:
            assert sorted(brief(take(events, 2))) == [("ADDED", "a"), ("ADDED", "b")]


def test_selector_makes_additions_and_deletions(space: Space) -> None:
    path, since = space.path("configmaps"), version(space)
    query = {"resourceVersion": since, "labelSelector": "color=red"}
    with watching(space.cluster, path, **query) as events:
        make(space, "a")
        label(space, "a", color="red")
        label(space, "a", size="xl")
        last = label(space, "a", color="blue")
        space.cluster.core.delete_namespaced_config_map("a", space.name)
        make(space, "b", color="red")
        seen = take(events, 4)
    assert brief(seen) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    gone = seen[2]["object"]["metadata"]
    assert gone["labels"]["color"] == "red", "the last version that matched"
    assert gone["resourceVersion"] == last.metadata.resource_version, "at the version it left"


def test_one_object_by_field_selector(space: Space) -> None:
    since = version(space)
    make(space, "a")
    make(space, "b")
    query = {"resourceVersion": since, "fieldSelector": "metadata.name=b"}
    with watching(space.cluster, space.path("configmaps"), **query) as events:
        assert brief(take(events, 1)) == [("ADDED", "b")]


def test_all_namespaces(space: Space) -> None:
    since = version(space)
    make(space, "a", of=space.suffix)
    query = {"resourceVersion": since, "labelSelector": f"of={space.suffix}"}
    with watching(space.cluster, "/api/v1/configmaps", **query) as events:
        [event] = take(events, 1)
    assert event["object"]["metadata"]["namespace"] == space.name


def test_a_write_that_changes_nothing_is_no_event(space: Space) -> None:
    made = make(space, "a")
    since = made.metadata.resource_version
    assert label(space, "a", of="test").metadata.resource_version == since
    label(space, "a", color="red")
    with watching(
        space.cluster, space.path("configmaps"), resourceVersion=since, labelSelector="of=test"
    ) as events:
        [event] = take(events, 1)
    assert event["object"]["metadata"]["labels"]["color"] == "red"


def test_ends_after_timeout_seconds_with_a_bookmark(space: Space) -> None:
    made = make(space, "a")
    since = made.metadata.resource_version
    query = {"resourceVersion": since, "timeoutSeconds": 4, "allowWatchBookmarks": "true"}
    with watching(space.cluster, space.path("configmaps"), **query) as events:
        make(space, "b")
        seen = list(events)
    marks = [event["object"] for event in seen if event["type"] == "BOOKMARK"]
    assert marks, "a bookmark before the watch ends"
    assert marks[-1]["kind"] == "ConfigMap"
    assert int(marks[-1]["metadata"]["resourceVersion"]) > int(since)
    assert not marks[-1]["metadata"].get("name")


def test_no_bookmarks_unless_asked(space: Space) -> None:
    query = {"resourceVersion": version(space), "timeoutSeconds": 3}
    with watching(space.cluster, space.path("configmaps"), **query) as events:
        assert [event["type"] for event in events] == []


def test_too_old_version_is_an_error_event_with_410(space: Space) -> None:
    """On events, which the real server's watch cache leaves to etcd."""
    make(space, "a")
    make(space, "b")
    space.cluster.expire()
    with watching(space.cluster, space.path("events"), resourceVersion="1") as events:
        seen = list(events)
    assert [event["type"] for event in seen] == ["ERROR"]
    status = seen[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert "too old" in status["message"]


def test_watch_list(space: Space) -> None:
    needs(space.cluster, 32, "watch lists (sendInitialEvents)")
    make(space, "a")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "labelSelector": "of=test",
    }
    with watching(space.cluster, space.path("configmaps"), **query) as events:
        first, mark = take(events, 2)
    assert brief([first]) == [("ADDED", "a")]
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_many_watchers_see_every_change_in_order(space: Space) -> None:
    since = version(space)
    make(space, "a")
    for number in range(50):
        space.cluster.core.patch_namespaced_config_map(
            "a", space.name, {"data": {"n": str(number)}}
        )
    for _ in range(3):
        with watching(
            space.cluster, space.path("configmaps"), resourceVersion=since, labelSelector="of=test"
        ) as events:
            seen = take(events, 50)
        # the first patch writes what is there already
        assert [event["object"]["data"]["n"] for event in seen] == list(map(str, range(50)))
