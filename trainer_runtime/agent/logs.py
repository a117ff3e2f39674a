"""What ranks print: whole lines with the rank's prefix, on the console and into files.

The console is written by a thread of its own from a bounded queue: a console that stands still
never holds up the agent; the oldest lines are dropped then, and counted. A file that reaches
FILE_BYTES goes on afresh, with the old half kept as NAME.1.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import BinaryIO

MAX_LINE = 64 * 1024  # bytes; a longer one is cut in several
QUEUE_LINES = 10_000
FILE_BYTES = 64 * 1024 * 1024


class Console:
    """`write` never blocks. `close` waits at most two seconds for what is still queued."""

    def __init__(self) -> None:
        self.dropped = 0
        self._lines: deque[tuple[int, bytes]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)
        self._thread.start()

    def write(self, descriptor: int, line: bytes) -> None:
        with self._changed:
            self._lines.append((descriptor, line))
            if len(self._lines) > QUEUE_LINES:
                self._lines.popleft()
                self.dropped += 1
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(2.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    if self._closing:
                        return
                    self._changed.wait()
                descriptor, line = self._lines.popleft()
                dropped, self.dropped = self.dropped, 0
            if dropped:
                line = b"[agent] console too slow: %d lines dropped\n" % dropped + line
            try:
                while line:
                    line = line[os.write(descriptor, line) :]
            except OSError:
                continue  # closed: files, if there are any, have it


class LogFile:
    """An append-only file of bounded size."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._size = self._file.tell()

    def write(self, line: bytes) -> None:
        if self._size + len(line) > FILE_BYTES:
            self._file.close()
            self.path.replace(f"{self.path}.1")
            self._file, self._size = self.path.open("wb", buffering=0), 0
        try:
            self._size += self._file.write(line)
        except OSError as error:
            print(f"[agent] log {self.path}: {error}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self._file.close()


class Lines:
    """Bytes of one stream into whole lines."""

    def __init__(
        self, console: Console, descriptor: int, prefix: str, file: LogFile | None
    ) -> None:
        self._console, self._descriptor, self._file = console, descriptor, file
        self.prefix = prefix
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._emit(line)
        while len(self._rest) > MAX_LINE:
            self._emit(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]

    def close(self) -> None:
        if self._rest:
            self._emit(self._rest)
        self._rest = b""
        if self._file is not None:
            self._file.close()

    def _emit(self, line: bytes) -> None:
        if self._file is not None:
            self._file.write(line + b"\n")
        self._console.write(self._descriptor, self.prefix.encode() + line + b"\n")
