"""A process group that can be swapped and aborted.

`ProcessGroupGloo` is constructed directly: no global state, a fresh store prefix for every epoch.
Its own `abort()` unblocks nothing, so an abort shuts the group's sockets down (shutdown(2)): every
pending operation then fails within milliseconds, for a stopped peer too. The group's sockets are
told apart from all others by their ports: gloo accepts on one listening port a rank, and the ranks
tell each other theirs through the store.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, ReduceOp, TCPStore

# Above this size pairs connect on first use: the eager full mesh costs more than it saves.
LAZY_ABOVE = 8
CHUNK_BYTES = 32 * 1024 * 1024


class GroupError(RuntimeError):
    """The group could not be set up, or an operation on it failed or was aborted."""


def _sockets() -> Iterator[socket.socket]:
    """A duplicate of every TCP socket of this process, closed after use."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            each = socket.socket(fileno=os.dup(int(name)))
            try:
                if each.family in (socket.AF_INET, socket.AF_INET6):
                    yield each
            finally:
                each.close()


def _listening() -> set[int]:
    ports = set()
    for each in _sockets():
        with contextlib.suppress(OSError):
            if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(each.getsockname()[1])
    return ports


def _shut(own: set[int], peers: set[tuple[str, int]]) -> int:
    """Shut connections accepted on `own` ports or made to `peers`; how many there were."""
    count = 0
    for each in _sockets():
        with contextlib.suppress(OSError):
            if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            host, port = each.getpeername()[:2]
            if each.getsockname()[1] in own or (host.removeprefix("::ffff:"), port) in peers:
                each.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


class Pending:
    """Operations under way. The tensors belong to them until `wait` has returned."""

    def __init__(self, group: Group, works: list[Any]) -> None:
        self._group, self._works = group, works

    def wait(self) -> None:
        """Until all are done. Raises GroupError, as soon as one fails or the group is aborted."""
        works, self._works = self._works, []
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise GroupError(f"epoch {self._group.epoch}: {error}") from None
        if self._group.aborted:
            raise GroupError(f"epoch {self._group.epoch}: aborted")


class Group:
    """One epoch's process group of `size` ranks. Operations block and raise GroupError.

    A group of one does nothing, correctly. `abort` may be called from any thread, at any time, also
    during set-up; after it, every operation fails.
    """

    def __init__(self, epoch: int, rank: int, size: int) -> None:
        self.epoch, self.rank, self.size = epoch, rank, size
        self.aborted = False
        self.setting_up: threading.Thread | None = None
        self._own: set[int] = set()
        self._peers: set[tuple[str, int]] = set()
        self._pg: Any = None
        self._lock = threading.Lock()

    def connect(
        self,
        store: tuple[str, int],
        prefix: str,
        *,
        host: str,
        setup_s: float,
        timeout_s: float,
        superseded: Callable[[], bool],
    ) -> None:
        """Set the group up. It runs in a thread of its own, since gloo's constructor can't be
        interrupted: when `superseded` it is left behind and ends by its own time-out."""
        if self.size == 1:
            return
        done = threading.Event()
        failure: list[str] = []

        def construct() -> None:
            try:
                self._construct(store, prefix, host, setup_s, timeout_s)
            except BaseException as error:
                # Its text only: the traceback would keep the device and its connections alive.
                failure.append(str(error))
            finally:
                done.set()

        self.setting_up = threading.Thread(
            target=construct, name=f"group-{self.epoch}", daemon=True
        )
        self.setting_up.start()
        deadline = time.monotonic() + 2 * setup_s
        while not done.wait(0.01):
            if superseded() or self.aborted or time.monotonic() > deadline:
                self.abort()
                raise GroupError(f"epoch {self.epoch}: set-up given up")
        if failure:
            raise GroupError(f"epoch {self.epoch}: set-up failed: {failure[0]}")
        if self.aborted:
            raise GroupError(f"epoch {self.epoch}: aborted during set-up")

    def _construct(
        self, store_at: tuple[str, int], prefix: str, host: str, setup_s: float, timeout_s: float
    ) -> None:
        # A client of its own: a wait on a shared one, left behind, would hold the next epoch up.
        self._peers.add(store_at)
        client = TCPStore(*store_at, is_master=False, timeout=timedelta(seconds=setup_s))
        store = PrefixStore(prefix, client)
        before = _listening()
        device = ProcessGroupGloo.create_device(hostname=host, lazy_init=self.size > LAZY_ABOVE)
        self._own |= _listening() - before
        store.set(f"ports/{self.rank}", f"{host} {' '.join(map(str, sorted(self._own)))}")
        options = ProcessGroupGloo._Options()
        options._devices = [device]
        options._timeout = timedelta(seconds=setup_s)
        group = ProcessGroupGloo(store, self.rank, self.size, options)
        for rank in range(self.size):
            address, *ports = store.get(f"ports/{rank}").decode().split()
            self._peers |= {(address, int(port)) for port in ports if rank != self.rank}
        group.set_timeout(timedelta(seconds=timeout_s))
        with self._lock:
            self._pg = group
            late = self.aborted
        if late:
            _shut(self._own, self._peers)
            self.free()

    # ---- operations ------------------------------------------------------------------------

    def _start(self, start: Callable[[Any], list[Any]]) -> Pending:
        group = self._pg
        if self.aborted or group is None:
            raise GroupError(f"epoch {self.epoch}: the group is gone")
        try:
            return Pending(self, start(group))
        except RuntimeError as error:
            raise GroupError(f"epoch {self.epoch}: {error}") from None

    def _do(self, start: Callable[[Any], list[Any]]) -> None:
        self._start(start).wait()

    def start_sum(self, tensors: list[torch.Tensor]) -> Pending:
        """`sum` in the background: every rank starts the same operations in the same order."""
        if self.size == 1:
            return Pending(self, [])
        return self._start(lambda group: [group.allreduce([each]) for each in tensors])

    def start_broadcast(self, tensor: torch.Tensor, root: int) -> Pending:
        """`broadcast` in the background."""
        if self.size == 1:
            return Pending(self, [])
        return self._start(lambda group: [group.broadcast(tensor, root)])

    def sum(self, tensors: list[torch.Tensor]) -> None:
        """Each tensor becomes the sum over all ranks, in place; all in flight together."""
        if self.size > 1:
            self.start_sum(tensors).wait()

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """The tensor of rank `root` goes to all others, in place."""
        if self.size > 1:
            self.start_broadcast(tensor, root).wait()

    def minimum(self, value: int) -> int:
        """The least of all ranks' values (64 bits)."""
        if self.size == 1:
            return value
        least = torch.tensor([value], dtype=torch.int64)
        self._do(lambda group: [group.allreduce([least], ReduceOp.MIN)])
        return int(least)

    def barrier(self) -> None:
        """Until every rank has come here. A sum, so that it needs no connections of its own."""
        self.sum([torch.zeros(1)])

    def gather(self, data: bytes) -> list[bytes]:
        """Every rank's `data`, by rank. For small ones: all are padded to the longest."""
        if self.size == 1:
            return [bytes(data)]
        sizes = [int(size) for size in self._all_gather(torch.tensor([len(data)]))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(bytearray(data) or bytearray(1), dtype=torch.uint8)[
            : len(data)
        ]
        every = self._all_gather(padded) if padded.numel() else [padded] * self.size
        return [each[:size].numpy().tobytes() for each, size in zip(every, sizes, strict=True)]

    def _all_gather(self, mine: torch.Tensor) -> list[torch.Tensor]:
        every = [torch.empty_like(mine) for _ in range(self.size)]
        self._do(lambda group: [group.allgather([every], [mine])])
        return every

    def start_send(self, data: torch.Tensor, to: int, tag: int) -> Pending:
        """Send one piece in the background; rank `to` starts the receipt of the same size and tag.
        Pieces of one tag between two ranks arrive in the order in which they were started."""
        return self._start(lambda group: [group.send([data], to, tag)])

    def start_receive(self, data: torch.Tensor, source: int, tag: int) -> Pending:
        """Receive what rank `source` sends by `start_send` into `data`, in the background."""
        return self._start(lambda group: [group.recv([data], source, tag)])

    def send(self, data: torch.Tensor, to: int) -> None:
        """Send a flat uint8 tensor; the receiver knows its size."""
        self._do(lambda group: [group.send([p], to, i) for i, p in enumerate(_chunks(data))])

    def receive(self, data: torch.Tensor, source: int) -> None:
        self._do(lambda group: [group.recv([p], source, i) for i, p in enumerate(_chunks(data))])

    # ---- the end ---------------------------------------------------------------------------

    def abort(self) -> int:
        """Every pending and later operation fails. Returns how many connections were shut."""
        self.aborted = True
        return _shut(set(self._own), set(self._peers)) if self.size > 1 else 0

    def free(self) -> threading.Thread | None:
        """Let go of the group off-thread: its destructor waits for its connections to close."""
        with self._lock:
            group, self._pg = self._pg, None
        if group is None:
            return None
        holding = [group]
        del group
        thread = threading.Thread(
            target=holding.clear, name=f"free-group-{self.epoch}", daemon=True
        )
        thread.start()
        return thread


def _chunks(data: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return data.split(CHUNK_BYTES) if data.numel() else ()
