"""A process's output, kept in a file that can't grow without bound."""

from __future__ import annotations

from collections import deque
from pathlib import Path

MAX_BYTES = 5 * 2**20
KEPT_FILES = 3
TAIL_LINES = 30


class RotatingLog:
    """Writes to `path`; at `max_bytes` that becomes `path.1` and so on, `kept` old ones at most."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, kept: int = KEPT_FILES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.max_bytes = max_bytes
        self.kept = kept
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._file = path.open("ab")

    def write(self, line: bytes) -> None:
        """Append one line. A full disk loses log lines; it must not take the processes down."""
        self.tail.append(line.decode(errors="replace").rstrip())
        try:
            if self._file.tell() + len(line) > self.max_bytes:
                self._rotate()
            self._file.write(line)
            self._file.flush()
        except OSError:
            pass

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self.kept - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))
        self._file = self.path.open("ab")

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def close(self) -> None:
        self._file.close()
