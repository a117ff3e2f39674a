"""What watcher and tasks hand each other: fenced snapshots, one queued reconcile, wake-ups."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.services.valkey import ValkeyServer
from workers import mailbox
from workers.mailbox import Observation

pytestmark = pytest.mark.usefixtures("broker")


def make_observation(**fields: object) -> Observation:
    base = Observation(
        cluster_id="7",
        epoch=3,
        version=1,
        taken_at=5000.0,
        complete=True,
        missing={},
        channels=["pods"],
        first_event_at=4999.9,
        problems=[],
        priority_classes=[],
        snapshot={"nodes": []},
    )
    return replace(base, **fields)


def test_the_newest_observation_comes_back_as_it_was() -> None:
    assert mailbox.newest("7") is None
    assert mailbox.publish(make_observation())
    later = make_observation(version=2, missing={"nodes": "no answer"}, complete=False)
    assert mailbox.publish(later)
    assert mailbox.newest("7") == later
    assert mailbox.newest("8") is None


def test_a_deposed_watcher_cannot_overwrite_its_successor() -> None:
    assert mailbox.publish(make_observation(epoch=3))
    assert mailbox.publish(make_observation(epoch=4, version=9))
    assert not mailbox.publish(make_observation(epoch=3, version=99))
    newest = mailbox.newest("7")
    assert newest is not None
    assert (newest.epoch, newest.version) == (4, 9)


def test_another_format_is_refused_by_number(broker: ValkeyServer) -> None:
    mailbox.client().set("concertina:snapshot:7", '{"format": 99}')
    with pytest.raises(ValueError, match="99"):
        mailbox.newest("7")


def test_a_reconcile_is_queued_once_until_it_begins() -> None:
    assert [mailbox.want_reconcile("7") for _ in range(3)] == [True, False, False]
    mailbox.reconcile_began("7")
    assert mailbox.take_wanted("7")
    assert not mailbox.take_wanted("7")
    assert mailbox.want_reconcile("7")  # something changed after it began


def test_clusters_do_not_hold_up_each_other() -> None:
    assert mailbox.want_reconcile("7")
    assert mailbox.want_reconcile("8")
    with mailbox.exclusive("reconcile:7") as first, mailbox.exclusive("reconcile:8") as second:
        assert (first, second) == (True, True)


def test_a_lock_is_held_once_and_given_back() -> None:
    with mailbox.exclusive("x") as held:
        assert held
        with mailbox.exclusive("x") as again:
            assert not again
        with mailbox.exclusive("x") as still:
            assert not still
    with mailbox.exclusive("x") as later:
        assert later


def test_a_lock_that_expired_and_was_taken_is_not_released_by_its_first_holder() -> None:
    with mailbox.exclusive("x") as held:
        assert held
        mailbox.client().set("concertina:lock:x", "somebody else")
    assert mailbox.client().get("concertina:lock:x") == b"somebody else"


def test_next_wake_is_told_to_listeners() -> None:
    heard: list[str] = []
    ready, done = threading.Event(), threading.Event()

    def listen() -> None:
        for cluster_id in mailbox.wakes(lambda: ready.set() or done.is_set()):
            heard.append(cluster_id)
            return

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(5)
    assert mailbox.next_wake("7") is None
    mailbox.set_next_wake("7", 1234.5)
    thread.join(5)
    done.set()
    assert heard == ["7"]
    assert mailbox.next_wake("7") == 1234.5
    mailbox.set_next_wake("7", None)
    assert mailbox.next_wake("7") is None
