"""Has a step been done for just these inputs? A digest of their contents, kept when it succeeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def files_under(root: Path, patterns: Iterable[str]) -> list[Path]:
    """Files that the glob patterns name, sorted; folders and generated caches left out."""
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in found if "__pycache__" not in path.parts)


def digest(root: Path, patterns: Iterable[str], extra: str = "") -> str:
    """SHA-256 over names and contents, and over `extra` (versions that are no file)."""
    total = hashlib.sha256(extra.encode())
    for path in files_under(root, patterns):
        total.update(str(path.relative_to(root)).encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


class Stamps:
    """One file a step under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def holds(self, name: str, value: str) -> bool:
        try:
            return (self.folder / name).read_text() == value
        except OSError:
            return False

    def write(self, name: str, value: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(value)

    def clear(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
