"""Pass a process's output on and have its lines watched. Standard library only.

process = subprocess.Popen(command, stderr=subprocess.PIPE)
tee = LogTee(process.stderr, sys.stderr.buffer, "rank-0", watch.feed, report)
...
tee.join()      # after the process has ended
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO, Generic, TypeVar

Found = TypeVar("Found")
_CHUNK = 65536
_LONGEST = 16384  # bytes of a line that are kept for the rules; the sink gets all
_ENDS = re.compile(rb"[\r\n]+")  # a progress bar ends its lines by a carriage return


class Lines:
    """Chunks to lines. Of a line that is longer than `_LONGEST` the beginning is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, chunk: bytes) -> list[str]:
        *whole, rest = _ENDS.split(self._rest + chunk)
        self._rest = rest[:_LONGEST]
        return [line[:_LONGEST].decode(errors="replace") for line in whole if line]

    def end(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


class LogTee(Generic[Found]):
    """A thread that reads `source` to its end. Bytes go on to `sink` at once and unchanged, lines
    to `feed(replica, line, now)`, what that finds to `report`. It goes on reading when the sink or
    the rules fail, since a process whose pipe is full would stand still; `problem` then says why.
    """

    def __init__(
        self, source: BinaryIO, sink: BinaryIO | None, replica: str,
        feed: Callable[[str, str, float], Sequence[Found]], report: Callable[[Found], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.replica, self.problem = replica, ""
        self._source, self._sink, self._feed, self._report = source, sink, feed, report
        self._clock = clock
        self._thread = threading.Thread(target=self._run, name=f"tee {replica}", daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the output, `timeout` seconds at most; whether it has come."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        lines = Lines()
        with self._source:
            while chunk := os.read(self._source.fileno(), _CHUNK):
                self._pass_on(chunk)
                self._watch(lines.add(chunk))
        self._watch(lines.end())

    def _pass_on(self, chunk: bytes) -> None:
        if self._sink is None:
            return
        try:
            self._sink.write(chunk)
            self._sink.flush()
        except (OSError, ValueError) as error:  # ValueError: it was closed
            self._sink, self.problem = None, f"output no longer passed on: {error}"

    def _watch(self, lines: list[str]) -> None:
        for line in lines:
            try:
                for found in self._feed(self.replica, line, self._clock()):
                    self._report(found)
            except Exception as error:  # whatever it is, the process must be able to print
                self.problem = f"line not watched: {error}"
