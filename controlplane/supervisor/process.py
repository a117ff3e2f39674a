"""One child process: start, collect its output, watch its health, end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from controlplane.supervisor.logs import RotatingLog
from controlplane.supervisor.posix import die_with_parent, kill_quietly
from controlplane.supervisor.specs import ProcessSpec

POLL_SECONDS = 0.05
LINE_LIMIT = 2**18


class Child:
    """`say` receives the lines to show at the terminal (already prefixed)."""

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        environment: dict[str, str],
        folder: Path,
        logs: Path,
        echo: Callable[[str], None] | None,
    ) -> None:
        self.spec = spec
        self.environment = environment
        self.folder = folder
        self.log = RotatingLog(logs / f"{spec.name}.log")
        self.echo = echo
        self.healthy = asyncio.Event()
        self.settled = asyncio.Event()  # healthy once, or given up
        self.started_at = 0.0
        self.process: asyncio.subprocess.Process | None = None
        self._pump: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.running else None

    async def start(self) -> None:
        """Start it in a session of its own: a terminal's Ctrl-C reaches the supervisor alone."""
        self.healthy.clear()
        self.started_at = time.time()
        # A pipe of our own: asyncio's would make wait() last until every heir of it has ended.
        read_end, write_end = os.pipe()
        try:
            self.process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                cwd=self.folder,
                env=self.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
        finally:
            os.close(write_end)
        self._pump = asyncio.create_task(self._collect(read_end))

    async def _collect(self, read_end: int) -> None:
        reader = asyncio.StreamReader(limit=LINE_LIMIT)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        try:
            await self._copy_lines(reader)
        finally:
            transport.close()

    async def _copy_lines(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # longer than LINE_LIMIT; what is there was dropped
                continue
            if not line:
                return
            self.log.write(line)
            if self.echo is not None:
                self.echo(f"{self.spec.name:>8} | {line.decode(errors='replace').rstrip()}")

    async def wait_until_healthy(self) -> bool:
        """True once its check passes; False when it ends or its time is over before that."""
        deadline = time.monotonic() + self.spec.start_seconds
        while self.running and time.monotonic() < deadline:
            if await self.spec.ready.passes(self.started_at):
                self.healthy.set()
                self.settled.set()
                return True
            await asyncio.sleep(POLL_SECONDS)
        return False

    async def wait(self) -> int:
        """Exit status, negative for a signal. Its output is collected to the end first."""
        assert self.process is not None
        status = await self.process.wait()
        self.end_group()
        if self._pump is not None:
            # A grandchild that left the group may hold the pipe open: don't wait for that one.
            await asyncio.wait([self._pump], timeout=0.5)
            self._pump.cancel()
        return status

    def terminate(self) -> None:
        if self.pid is not None:
            kill_quietly(self.pid, signal.SIGTERM)

    def end_group(self) -> None:
        """End what is left of its process group: a pool whose parent crashed, for example."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self.log.close()
