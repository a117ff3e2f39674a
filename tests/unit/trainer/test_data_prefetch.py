"""Prefetching: the right batch under any plan, bounded, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_runtime.data.prefetch import Prefetcher, size_of


class Source:
    """Counts loads; each batch has 1 MiB. `gate` holds the loads of other threads back."""

    def __init__(self) -> None:
        self.loaded: list[tuple[int, ...]] = []
        self.gate, self.reached = threading.Event(), threading.Semaphore(0)
        self.gate.set()
        self.fails: set[int] = set()

    def __call__(self, indices: Sequence[int]) -> np.ndarray:
        self.reached.release()
        if threading.current_thread() is not threading.main_thread():
            self.gate.wait(10)
        self.loaded.append(tuple(indices))
        if self.fails.intersection(indices):
            raise LookupError(f"no {indices[0]}")
        return np.full(1 << 17, indices[0], dtype=np.int64)


def settle(prefetcher: Prefetcher, count: int) -> None:
    """Wait until so many batches are held."""
    with prefetcher._changed:
        assert prefetcher._changed.wait_for(lambda: len(prefetcher._held) >= count, 10)


@settings(deadline=None, max_examples=30)
@given(
    plans=st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6),
    asked=st.lists(st.integers(0, 9), max_size=6),
    limit=st.integers(1, 4),
)
def test_any_plan_gives_the_batch_that_was_asked_for(
    plans: list[list[int]], asked: list[int], limit: int
) -> None:
    with Prefetcher(Source(), limit_mib=limit, threads=2) as prefetcher:
        for plan in plans:
            prefetcher.plan([(i, i + 1) for i in plan])
            for i in asked:
                assert prefetcher((i, i + 1))[0] == i


def test_reads_ahead_and_looks_back() -> None:
    source = Source()
    with Prefetcher(source) as prefetcher:
        prefetcher.plan([(1,), (2,)])
        settle(prefetcher, 2)
        first = prefetcher([1])
        prefetcher.plan([(1,), (2,), (3,)])  # the step is repeated
        assert prefetcher([1]) is first
        assert prefetcher([2])[0] == 2
        settle(prefetcher, 3)
    assert source.loaded == [(1,), (2,), (3,)]
    assert (prefetcher.counts.hits, prefetcher.counts.misses) == (3, 0)


def test_a_batch_under_way_is_waited_for_and_one_in_the_queue_is_not() -> None:
    source = Source()
    source.gate.clear()
    with Prefetcher(source) as prefetcher:
        prefetcher.plan([(1,), (2,)])
        assert source.reached.acquire(timeout=10)
        assert prefetcher([2])[0] == 2  # would wait for 1 in the queue
        threading.Timer(0.01, source.gate.set).start()
        assert prefetcher([1])[0] == 1
        assert (prefetcher.counts.waits, prefetcher.counts.misses) == (1, 1)
    assert sorted(source.loaded) == [(1,), (2,)]


def test_after_a_resize_other_shares_are_loaded_directly() -> None:
    source = Source()
    source.gate.clear()
    with Prefetcher(source) as prefetcher:
        prefetcher.plan([(1, 2), (3, 4)])
        assert source.reached.acquire(timeout=10)
        assert prefetcher([1])[0] == 1
        prefetcher.plan([(2,)])
        source.gate.set()
        settle(prefetcher, 3)
    assert (3, 4) not in source.loaded


def test_bounded() -> None:
    source = Source()
    with Prefetcher(source, limit_mib=3) as prefetcher:
        prefetcher.plan([(i,) for i in range(8)])
        settle(prefetcher, 3)
        for i in range(8):
            assert prefetcher([i])[0] == i
            with prefetcher._changed:
                held = sum(each.size for each in prefetcher._held.values())
            assert held <= 4 << 20  # the limit, and one that the caller loads itself
    assert prefetcher._held == {}


def test_an_exception_comes_with_its_batch_and_the_next_try_loads_again() -> None:
    source = Source()
    source.fails = {2}
    with Prefetcher(source) as prefetcher:
        prefetcher.plan([(1,), (2,), (3,)])
        settle(prefetcher, 3)
        assert prefetcher([1])[0] == 1
        with pytest.raises(LookupError, match="no 2"):
            prefetcher([2])
        source.fails = set()
        assert prefetcher([2])[0] == 2
        assert prefetcher([3])[0] == 3


def test_threads_end_with_it() -> None:
    source = Source()
    prefetcher = Prefetcher(source, threads=3)
    prefetcher.plan([(i,) for i in range(5)])
    assert prefetcher.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("prefetch-")]
    with pytest.raises(RuntimeError, match="closed"):
        prefetcher([1])


def test_close_says_if_a_load_hangs() -> None:
    source = Source()
    source.gate.clear()
    prefetcher = Prefetcher(source)
    prefetcher.plan([(1,)])
    assert source.reached.acquire(timeout=10)
    assert not prefetcher.close(0.01)
    source.gate.set()
    assert prefetcher.close()


@pytest.mark.parametrize(
    ("batch", "want"),
    [
        (np.zeros(4, dtype=np.int64), 32),
        ({"a": np.zeros(2), "b": [np.zeros(3)]}, 64 + 16 + 64 + 24),
        (b"abc", 3),
        (5, 64),
    ],
)
def test_sizes(batch: object, want: int) -> None:
    assert size_of(batch) == want


@pytest.mark.parametrize(
    ("options", "want"), [({"limit_mib": 0}, "limit_mib"), ({"threads": 0}, "threads")]
)
def test_refused(options: dict[str, int], want: str) -> None:
    with pytest.raises(ValueError, match=f"{want}: must be"):
        Prefetcher(Source(), **options)
