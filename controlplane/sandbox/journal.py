"""The sandbox's state on disk: a snapshot and an append-only log of JSON lines.

Each write is one `os.write` to the log before the change is acknowledged, so `kill -9` loses
nothing that a client was told (a power cut may: the log isn't fsynced, this is a sandbox). A
torn last line is dropped. When the log outgrows the live state, the state is written to a new
snapshot, which replaces the old one by rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from controlplane.sandbox.watching import encode

FORMAT = 1


class DataError(Exception):
    """The data folder can't be used; the message says why and what to do."""


class Journal:
    """`load` once, then `put` and `remove` for each change.

    Files in `folder`: `objects.jsonl` (snapshot), `changes.jsonl` (log), `lock`.
    """

    def __init__(self, folder: Path, *, compact_bytes: int = 8 << 20) -> None:
        self._folder = folder
        self._snapshot = folder / "objects.jsonl"
        self._log = folder / "changes.jsonl"
        self._compact_bytes = compact_bytes
        self._written = 0
        self._snapshot_bytes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise DataError(f"can't use {folder} for data: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise DataError(
                f"{folder} is in use by another sandbox: stop that one, or choose another --data"
            ) from error
        self._fd: int | None = None

    def load(self) -> tuple[int, dict[tuple[str, str, str], dict]]:
        """The last resourceVersion and every object by (kind, namespace, name)."""
        version = 0
        objects: dict[tuple[str, str, str], dict] = {}
        for record in [*_lines(self._snapshot), *_lines(self._log)]:
            if "format" in record and record["format"] != FORMAT:
                raise DataError(
                    f"{self._folder} was written in format {record['format']}, this sandbox reads "
                    f"format {FORMAT}: remove the folder to start afresh"
                )
            version = max(version, int(record["rv"]))
            if "key" not in record:
                continue
            kind, namespace, name = record["key"]
            if (obj := record.get("obj")) is not None:
                objects[kind, namespace, name] = obj
            else:
                objects.pop((kind, namespace, name), None)
        return version, objects

    def put(self, key: tuple[str, str, str], version: int, raw: bytes) -> None:
        """Record that `key` now is the object whose JSON is `raw`."""
        head = encode({"rv": version, "key": key})
        self._append(head[:-1] + b',"obj":' + raw + b"}\n")

    def remove(self, key: tuple[str, str, str], version: int) -> None:
        """Record that `key` is gone since `version`."""
        self._append(encode({"rv": version, "key": key}) + b"\n")

    def wants_compaction(self) -> bool:
        """Whether the log has outgrown the live state."""
        return self._written > max(self._compact_bytes, 2 * self._snapshot_bytes)

    def compact(self, version: int, objects: Iterable[tuple[tuple[str, str, str], bytes]]) -> None:
        """Write the live state as the new snapshot and empty the log."""
        temporary = self._snapshot.with_suffix(".tmp")
        # Secrets are in it
        with os.fdopen(
            os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb"
        ) as file:
            file.write(encode({"format": FORMAT, "rv": version}) + b"\n")
            for key, raw in objects:
                head = encode({"rv": version, "key": key})
                file.write(head[:-1] + b',"obj":' + raw + b"}\n")
            file.flush()
            os.fsync(file.fileno())
            self._snapshot_bytes = file.tell()
        temporary.replace(self._snapshot)
        self._close_log()
        with contextlib.suppress(FileNotFoundError):
            self._log.unlink()
        self._written = 0

    def close(self) -> None:
        """Release the folder."""
        self._close_log()
        os.close(self._lock)

    def _append(self, line: bytes) -> None:
        if self._fd is None:
            self._fd = os.open(self._log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        view = memoryview(line)
        while view:
            view = view[os.write(self._fd, view) :]
        self._written += len(line)

    def _close_log(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _lines(path: Path) -> Iterator[dict]:
    """The records of one file; a torn last line ends it, any other damage is an error."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    return
                raise DataError(
                    f"{path} is damaged at line {number}: remove its folder to start afresh"
                ) from error
