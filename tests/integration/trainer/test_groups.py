"""Groups of real processes: set-up, operations, faults at each point, and what is left behind."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch.distributed import TCPStore

from trainer_runtime.group import Group

FORK = mp.get_context("fork")
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def connected(rank: int, size: int, port: int) -> Group:
    group = Group(1, rank, size)
    group.connect(
        ("127.0.0.1", port), "test/1", host="127.0.0.1", setup_s=10, timeout_s=10,
        superseded=lambda: False,
    )  # fmt: skip
    return group


def each_operation(group: Group) -> dict[str, Any]:
    rank, size = group.rank, group.size
    tensors = [torch.full((3,), float(rank + 1)), torch.full((2,), rank, dtype=torch.int64)]
    pending = group.start_sum(tensors)
    pending.wait()
    word = torch.full((2,), rank)
    group.start_broadcast(word, size - 1).wait()
    group.barrier()
    return {
        "sums": [each.tolist() for each in tensors],
        "broadcast": word.tolist(),
        "minimum": group.minimum(7 - rank - (1 << 40)),
        "gather": group.gather(bytes([rank]) * (3 * rank)),
        "empty": group.gather(b""),
    }


def in_processes(size: int, main: Callable[[int, Any], Any]) -> list[Any]:
    """What `main(rank, port)` returned in each of `size` forked processes."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False,
                      timeout=timedelta(seconds=10))  # fmt: skip
    queue = FORK.SimpleQueue()
    processes = [
        FORK.Process(target=lambda r=rank: queue.put((r, main(r, server.port))))
        for rank in range(size)
    ]
    for each in processes:
        each.start()
    answers = dict(queue.get() for _ in processes)
    for each in processes:
        each.join(PATIENCE_S)
        assert each.exitcode == 0
    return [answers[rank] for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_operations(size: int) -> None:
    total = size * (size + 1) / 2
    want = {
        "sums": [[total] * 3, [int(total) - size] * 2],
        "broadcast": [size - 1] * 2,
        "minimum": 8 - size - (1 << 40),
        "gather": [bytes([rank]) * (3 * rank) for rank in range(size)],
        "empty": [b""] * size,
    }
    assert (
        in_processes(size, lambda r, port: each_operation(connected(r, size, port)))
        == [want] * size
    )
