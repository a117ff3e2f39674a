"""The agent's view of what it starts: processes forked by the nursery, and replicas of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.agent.logs import Lines
from trainer_runtime.agent.ports import HeldPort, connected

STARTS_IN_S = 120.0  # importing torch on a crowded machine


class NurseryError(RuntimeError):
    """The nursery can't be started; the sentence says why."""


class Nursery:
    """The forkserver as a child process; see `nursery.py`. `start` blocks until it is ready."""

    def __init__(self, preload: str, environment: dict[str, str]) -> None:
        self._preload, self._environment = preload, environment
        self.pid = 0
        self._channel: socket.socket | None = None

    def start(self) -> None:
        self.close()
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            [
                sys.executable, "-m", "trainer_runtime.agent.nursery", str(theirs.fileno()),
                str(os.getpid()), self._preload,
            ],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=self._environment,
        )  # fmt: skip
        theirs.close()
        process.returncode = 0  # the agent reaps all of its children itself
        self.pid, self._channel = process.pid, ours
        ours.settimeout(STARTS_IN_S)
        try:
            ready = ours.recv(1)
        except TimeoutError:
            ready = b""
        if not ready:
            self.close()
            raise NurseryError(
                f"--preload {self._preload}: the process that imports it didn't come up; what it "
                "said stands above"
            )

    def fork(self, control: int, out: int, err: int) -> None:
        assert self._channel is not None
        socket.send_fds(self._channel, [b"f"], [control, out, err])

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class Process:
    """One forked process: parked until it is given a task. `on_end(process)` once it has ended and
    all it printed was read (or half a second later: a grandchild may hold the pipe open)."""

    def __init__(
        self, nursery: Nursery, out: Lines, err: Lines, on_end: Callable[[Process], None]
    ) -> None:
        self.pid = self.group = 0
        self.code: int | None = None
        self.ended_at = 0.0
        self.task: dict[str, Any] | None = None
        self.on_start: Callable[[Process], None] | None = None  # it was given its task
        self._cancelled = False
        self.lines = (out, err)
        self.closed = asyncio.Event()  # all that it printed was read
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._control, theirs = socket.socketpair()
        self._pipes = {}
        ends = []
        for lines in (out, err):
            read, write = os.pipe()
            os.set_blocking(read, False)
            self._pipes[read] = lines
            ends.append(write)
            self._loop.add_reader(read, self._read, read)
        nursery.fork(theirs.fileno(), *ends)
        theirs.close()
        for each in ends:
            os.close(each)
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._hear)

    @property
    def known(self) -> bool:
        return self.pid > 0

    def give(self, task: dict[str, Any]) -> None:
        """The task to be; sent at once, or as soon as the process has said that it is there."""
        self.task = task
        if self.known:
            self._send()

    def signal(self, number: int) -> None:
        """To the process; SIGKILL to its whole group. One that isn't there yet ends as it comes."""
        self._cancelled = self._cancelled or not self.known
        if self.known and self.code is None:
            with contextlib.suppress(ProcessLookupError):
                if number == signal.SIGKILL:
                    os.killpg(self.group, number)
                else:
                    os.kill(self.pid, number)

    def ended(self, code: int) -> None:
        """Its exit code (negative: the signal) is known: what it started goes with it."""
        self.code, self.ended_at = code, time.monotonic()
        if self.group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.group, signal.SIGKILL)
        self._forget_control()
        for read in list(self._pipes):
            self._read(read)  # what is there; the rest until its end
        self._on_end(self)
        self._loop.call_later(0.5, self._close_pipes)

    def _hear(self) -> None:
        try:
            data = self._control.recv(4096)
        except OSError:
            data = b""
        if not data:
            self._forget_control()
            if not self.known:
                self.ended(1)  # it ended before it was there
            return
        said = json.loads(data)
        self.pid, self.group = said["pid"], said["group"]
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            self.ended(1)  # it was reaped before we knew it
            return
        if self._cancelled:
            self._forget_control()
        elif self.task is not None:
            self._send()

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # it ended: seen by its exit
            self._control.setblocking(True)
            self._control.sendall(json.dumps(self.task).encode() + b"\n")
        self._forget_control()
        if self.on_start is not None:
            self.on_start(self)

    def _forget_control(self) -> None:
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._control.close()

    def _read(self, read: int) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(read, 1 << 16)
            if data:
                self._pipes[read].feed(data)
            else:
                self._close_pipe(read)

    def _close_pipe(self, read: int) -> None:
        lines = self._pipes.pop(read)
        self._loop.remove_reader(read)
        os.close(read)
        lines.close()
        if not self._pipes:
            self.closed.set()

    def _close_pipes(self) -> None:
        for read in list(self._pipes):
            self._close_pipe(read)


@dataclass
class Replica:
    """One start of one replica: its processes in rank order. `slot` is its place on this node,
    None while it is a standby."""

    name: str
    processes: list[Process] = field(default_factory=list)
    slot: int | None = None
    port: HeldPort | None = None
    park: Path | None = None
    park_fd: int = -1
    warm: bool = False
    asked_to_leave: bool = False
    failed: str = ""  # why it was replaced
    expired: str = ""  # why the authority gave it up
    killed: bool = False  # it didn't leave in time
    connected: bool = False

    @property
    def over(self) -> bool:
        return all(each.code is not None for each in self.processes)

    @property
    def code(self) -> int:
        """The first that isn't 0, in the order of ends."""
        ended = sorted(self.processes, key=lambda each: each.ended_at)
        return next((each.code for each in ended if each.code), 0)

    @property
    def ready(self) -> bool:
        return bool(self.processes) and all(p.known and p.code is None for p in self.processes)

    def signal(self, number: int) -> None:
        for each in self.processes:
            each.signal(number)

    def prefix(self, place: str) -> None:
        """What its lines begin with from now on."""
        for rank, process in enumerate(self.processes):
            for lines in process.lines:
                lines.prefix = f"[{place}:{rank}] "

    def took_part(self, ports: Sequence[int]) -> bool:
        """Whether it has ever been seen connected to an authority at one of `ports`."""
        self.connected = self.connected or any(
            connected(p.group, port)
            for p in self.processes
            for port in ports
            if p.known and p.code is None
        )
        return self.connected

    def wake(self) -> None:
        """A warm standby goes on from where it parked."""
        os.write(self.park_fd, repr(time.monotonic()).encode())

    def close(self) -> None:
        if self.port is not None:
            self.port.close()
        if self.park_fd >= 0:
            os.close(self.park_fd)
            self.park_fd = -1
        if self.park is not None:
            self.park.unlink(missing_ok=True)
