"""A corpus that every machine has: the source text of Python's standard library, as bytes."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


def cache_folder() -> Path:
    """CONCERTINA_CACHE_DIR, else the user's cache."""
    given = os.environ.get("CONCERTINA_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "concertina"


def sources(library: Path) -> list[Path]:
    """Its modules in a fixed order, without tests and installed packages."""
    found = [
        path
        for path in library.rglob("*.py")
        if not _SKIPPED.intersection(path.relative_to(library).parts)
    ]
    return sorted(found, key=lambda path: path.relative_to(library).as_posix())


def build(folder: Path) -> Path:
    """The corpus as one file, written whole the first time and kept."""
    version = ".".join(map(str, sys.version_info[:3]))
    path = folder / f"stdlib-{version}.bytes"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as out:
            for source in sources(Path(sysconfig.get_path("stdlib"))):
                out.write(source.read_bytes() + b"\n")
        partial.replace(path)  # two replicas that build it at once write the same
    finally:
        partial.unlink(missing_ok=True)
    return path


class ByteWindows:
    """Windows of `length` + 1 bytes, one after the other: `length` inputs and as many targets."""

    def __init__(self, path: Path, length: int) -> None:
        self.length = length
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        if len(self._bytes) <= length:
            raise ValueError(f"{path}: {len(self._bytes)} bytes are too few for one of {length}")

    def __len__(self) -> int:
        return (len(self._bytes) - 1) // self.length

    def batch(self, indices: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """[len(indices), length + 1] byte values."""
        rows = [self._bytes[i * self.length : (i + 1) * self.length + 1] for i in indices]
        return np.stack(rows).astype(np.int64)
