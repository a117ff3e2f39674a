"""Reads batches ahead in the background and keeps those just used, for a redo after a recovery.

    with Prefetcher(load) as prefetcher:
        trainer = ElasticTrainer(..., load=prefetcher)

The trainer calls `plan` at the start of a step with the micro-batches of this step and the next. A
batch is known by its indices, so a resize can't give a wrong one: what wasn't read ahead is loaded
directly. A batch may be handed out again: it must not be modified in place.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Key = tuple[int, ...]


@dataclass(slots=True)
class _Batch:
    value: Any
    error: BaseException | None
    size: int
    used: bool = False


@dataclass(slots=True)
class PrefetchCounts:
    """`hits` were there already, `waits` were being loaded, `misses` were loaded by the caller."""

    hits: int = 0
    waits: int = 0
    misses: int = 0


class Prefetcher:
    """`load(indices)` is called by `threads` threads and by the caller, so it must be thread-safe,
    and it must not draw from the process's random generators (see MapStyle for such datasets).

    At most about `limit_mib` of batches are held; one batch is held however large it is. What
    `load` raises is raised by the call that asks for that batch, and tried again by the next.
    """

    def __init__(
        self, load: Callable[[Sequence[int]], Any], *, limit_mib: float = 256.0, threads: int = 1
    ) -> None:
        if limit_mib <= 0:
            raise ValueError(f"limit_mib: must be above 0 (got {limit_mib})")
        if threads < 1:
            raise ValueError(f"threads: must be at least 1 (got {threads})")
        self.counts = PrefetchCounts()
        self._load, self._limit = load, int(limit_mib * (1 << 20))
        self._changed = threading.Condition()
        self._held: OrderedDict[Key, _Batch] = OrderedDict()  # the least recently used first
        self._planned: set[Key] = set()
        self._queue: deque[Key] = deque()
        self._loading: set[Key] = set()
        self._largest = 0
        self._closed = False
        self._count = threads
        self._threads: list[threading.Thread] = []

    def plan(self, upcoming: Sequence[Sequence[int]]) -> None:
        """The batches that will be asked for, in order. What an earlier plan named and this one
        doesn't is no longer read ahead."""
        keys = list(dict.fromkeys(tuple(each) for each in upcoming))
        with self._changed:
            self._refuse_closed()
            self._planned = set(keys)
            self._held = OrderedDict(
                (key, batch)
                for key, batch in self._held.items()
                if batch.error is None or key in self._planned
            )
            self._queue = deque(
                key for key in keys if key not in self._held and key not in self._loading
            )
            self._start()
            self._changed.notify_all()

    def __call__(self, indices: Sequence[int]) -> Any:
        """The batch of these indices. Raises what `load` raises, and RuntimeError once closed."""
        key = tuple(indices)
        with self._changed:
            self._refuse_closed()
            waited = key in self._loading
            while key in self._loading:
                self._changed.wait()
            batch = self._held.get(key)
            if batch is None:
                self.counts.misses += 1
                self._loading.add(key)
                if key in self._queue:
                    self._queue.remove(key)
            elif waited:
                self.counts.waits += 1
            else:
                self.counts.hits += 1
        if batch is None:
            batch = self._fetch(key)
        with self._changed:
            batch.used = True
            if batch.error is not None:
                self._held.pop(key, None)
                raise batch.error
            if key in self._held:
                self._held.move_to_end(key)
            self._evict()
            self._changed.notify_all()
        return batch.value

    def close(self, timeout_s: float = 5.0) -> bool:
        """End the threads; False if one is still inside `load`. It is a daemon then: it ends with
        its load, or with the process."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._held.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        """With the first plan, not before: a process forked until then has its own threads."""
        while len(self._threads) < self._count:
            thread = threading.Thread(
                target=self._work, name=f"prefetch-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._queue and self._has_room()))
                if self._closed:
                    return
                key = self._queue.popleft()
                self._loading.add(key)
            self._fetch(key)

    def _fetch(self, key: Key) -> _Batch:
        """Load and hold; the caller has entered `key` in `_loading`."""
        try:
            value = self._load(key)
            batch = _Batch(value, None, size_of(value))
        except BaseException as error:  # raised where this batch is asked for
            batch = _Batch(None, error, 0)
        with self._changed:
            self._loading.discard(key)
            self._largest = max(self._largest, batch.size)
            if not self._closed:
                self._held[key] = batch
                self._evict()
            self._changed.notify_all()
        return batch

    def _has_room(self) -> bool:
        """Whether one more batch fits beside those that are still to be used."""
        ahead = sum(self._held[key].size for key in self._held if self._awaited(key))
        ahead += self._largest * len(self._loading)
        return ahead == 0 or ahead + self._largest <= self._limit

    def _awaited(self, key: Key) -> bool:
        return key in self._planned and not self._held[key].used

    def _evict(self) -> None:
        total = sum(batch.size for batch in self._held.values())
        for key in list(self._held):
            if total <= self._limit or len(self._held) == 1:
                return
            if not self._awaited(key):
                total -= self._held.pop(key).size

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the prefetcher is closed; make a new one")


def size_of(batch: Any) -> int:
    """Bytes of the arrays and tensors in a batch, through mappings and sequences; others count a
    little, so that there can't be endlessly many."""
    if isinstance(size := getattr(batch, "nbytes", None), int):
        return size
    if isinstance(batch, bytes | bytearray | str):
        return len(batch)
    if isinstance(batch, Mapping):
        return 64 + sum(size_of(each) for each in batch.values())
    if isinstance(batch, list | tuple | set):
        return 64 + sum(size_of(each) for each in batch)
    if hasattr(batch, "__dict__"):
        return 64 + sum(size_of(each) for each in vars(batch).values())
    return 64
