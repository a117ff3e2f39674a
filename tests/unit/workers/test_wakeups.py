"""A burst of events wakes the loop once; quiet leaves it asleep."""

from __future__ import annotations

import threading
import time

from controlplane.cluster.channels import Channel
from workers.wakeups import Wakeups


def test_a_burst_from_many_threads_is_one_wakeup() -> None:
    wakeups = Wakeups(window_s=0.2)
    began = time.time()
    channels = [Channel.PODS, Channel.NODES] * 50
    threads = [threading.Thread(target=wakeups.event, args=(c,)) for c in channels]
    for thread in threads:
        thread.start()
    found = wakeups.wait(5)
    assert found is not None
    assert found.channels == {Channel.PODS, Channel.NODES}
    assert began <= found.first_event_at <= time.time()
    assert wakeups.wait(0) is None


def test_an_event_after_the_window_is_the_next_wakeup() -> None:
    wakeups = Wakeups(window_s=0)
    wakeups.event(Channel.PODS)
    first = wakeups.wait(5)
    wakeups.event(Channel.SCHEDULER)
    second = wakeups.wait(5)
    assert first is not None
    assert second is not None
    assert (first.channels, second.channels) == ({Channel.PODS}, {Channel.SCHEDULER})


def test_quiet_and_nudges_are_no_wakeups() -> None:
    wakeups = Wakeups()
    assert wakeups.wait(0.01) is None
    wakeups.nudge()
    began = time.monotonic()
    assert wakeups.wait(10) is None
    assert time.monotonic() - began < 5
