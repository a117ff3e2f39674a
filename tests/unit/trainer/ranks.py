"""Several ranks as threads of this process, with a group in memory between them."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

PATIENCE_S = 20.0


class Done:
    def wait(self) -> None: ...


class Coming:
    def __init__(self, box: queue.Queue[torch.Tensor], data: torch.Tensor) -> None:
        self._box, self._data = box, data

    def wait(self) -> None:
        self._data.copy_(self._box.get(timeout=PATIENCE_S))


class Post:
    """What ranks have sent each other. `on_the_way(source, to, tag, data)` may change it."""

    def __init__(self, size: int, on_the_way: Callable[..., None] = lambda *_: None) -> None:
        self.size, self.on_the_way = size, on_the_way
        self.boxes: dict[Any, queue.Queue[torch.Tensor]] = defaultdict(queue.Queue)
        self.sent: dict[tuple[int, int], int] = defaultdict(int)
        self._lock = threading.Lock()
        self._met = threading.Barrier(size)
        self._told: list[Any] = [None] * size

    def box(self, *where: Any) -> queue.Queue[torch.Tensor]:
        with self._lock:
            return self.boxes[where]

    def all_of(self, rank: int, value: Any) -> list[Any]:
        """Every rank's value."""
        self._told[rank] = value
        self._met.wait(PATIENCE_S)
        every = list(self._told)
        self._met.wait(PATIENCE_S)
        return every


class MemoryGroup:
    """The part of `Group` that a hand-over of state uses."""

    def __init__(self, post: Post, rank: int) -> None:
        self._post, self.rank, self.size = post, rank, post.size

    def start_send(self, data: torch.Tensor, to: int, tag: int | str) -> Done:
        data = data.clone()
        self._post.on_the_way(self.rank, to, tag, data)
        self._post.sent[self.rank, to] += data.numel()
        self._post.box(self.rank, to, tag).put(data)
        return Done()

    def start_receive(self, data: torch.Tensor, source: int, tag: int | str) -> Coming:
        return Coming(self._post.box(source, self.rank, tag), data)

    def send(self, data: torch.Tensor, to: int) -> None:
        self.start_send(data, to, "whole")

    def receive(self, data: torch.Tensor, source: int) -> None:
        self.start_receive(data, source, "whole").wait()

    def sum(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            tensor.copy_(sum(self._post.all_of(self.rank, tensor.clone())))

    def minimum(self, value: int) -> int:
        return min(self._post.all_of(self.rank, value))


def on_ranks(post: Post, work: Callable[[Any], Any]) -> list[Any]:
    """By rank what `work(group)` returned, or the exception that it raised."""

    def one(rank: int) -> Any:
        try:
            return work(MemoryGroup(post, rank))
        except Exception as error:
            return error

    with ThreadPoolExecutor(post.size) as pool:
        return list(pool.map(one, range(post.size)))
