"""Any map-style torch Dataset as a `load(indices)`, in this process or in processes of its own."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import queue
import random
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from trainer_runtime.sampler import mix

_PR_SET_PDEATHSIG = 1
_END_S = 1.0


class WorkerDied(RuntimeError):
    """A loader process ended (killed, or out of memory); the next load starts another."""


class MapStyle:
    """`load(indices)` gives `collate` of the dataset's items.

    With `workers` 0 items are made here, and must not draw from the process's random generators.
    Else so many processes make them; each item's generators (torch, numpy, random) are seeded by
    (seed, index), so that an item is the same whoever makes it. They are used at the same time by
    several threads only: `Prefetcher(MapStyle(dataset, workers=4), threads=4)`. Dataset and collate
    must be picklable, and the script needs `if __name__ == "__main__":`. The processes end with
    this one, whatever ends it. A batch comes back by value, through a pipe.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate: Callable[[list[Any]], Any] = default_collate,
        workers: int = 0,
        seed: int = 0,
    ) -> None:
        if workers < 0:
            raise ValueError(f"workers: must not be negative (got {workers})")
        self.dataset, self.collate, self.seed = dataset, collate, seed
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(dataset, collate, seed) for _ in range(workers)]
        for worker in self._workers:
            self._idle.put(worker)

    def __len__(self) -> int:
        return len(self.dataset)

    def __call__(self, indices: Sequence[int]) -> Any:
        """Raises what dataset and collate raise, and WorkerDied."""
        if not self._workers:
            return self.collate(_items(self.dataset, indices))
        worker = self._idle.get()
        try:
            return worker.load(indices)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> MapStyle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Worker:
    """A process and the pipe to it, started again if it died."""

    def __init__(self, *task: Any) -> None:
        self._task = task
        self._start()

    def _start(self) -> None:
        # Not forked from here: a fork would hold the trainer's sockets open after its death.
        context = multiprocessing.get_context("forkserver")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, *self._task), daemon=True)
        self.process.start()
        theirs.close()

    def load(self, indices: Sequence[int]) -> Any:
        if not self.process.is_alive():
            self.close()
            self._start()
        try:
            self._pipe.send(list(indices))
            good, value = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            self.process.join(_END_S)
            raise WorkerDied(
                f"a loader process ended with exit code {self.process.exitcode} at samples "
                f"{list(indices)[:4]}..."
            ) from error
        if not good:
            raise value
        return value

    def close(self) -> None:
        self._pipe.close()  # an idle process ends by this
        self.process.join(_END_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(pipe: Connection, dataset: Any, collate: Callable[[list[Any]], Any], seed: int) -> None:
    """In the process: batches on request, until the pipe ends."""
    # Its parent is the fork server, which ends as soon as the trainer does.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        return
    for number in (signal.SIGTERM, signal.SIGINT):  # the trainer still finishes its step
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    while True:
        try:
            indices = pipe.recv()
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, collate(_seeded(dataset, indices, seed))), protocol=5)
        except BaseException as error:
            answer = _packed(error)
        try:
            pipe.send_bytes(answer)
        except OSError:
            return


def _packed(error: BaseException) -> bytes:
    """An exception that can't be pickled, or not unpickled, is told as a RuntimeError."""
    try:
        packed = pickle.dumps((False, error), protocol=5)
        pickle.loads(packed)
        return packed
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _items(dataset: Any, indices: Sequence[int]) -> list[Any]:
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(list(indices)))
    return [dataset[index] for index in indices]


def _seeded(dataset: Any, indices: Sequence[int], seed: int) -> list[Any]:
    items = []
    for index in indices:
        number = mix(seed, index)
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number & 0xFFFFFFFF)
        items += _items(dataset, [index])
    return items
