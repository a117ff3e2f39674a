"""A folder of token shards: its manifest, and the writer that publishes it whole or not at all.

manifest.json: {"format", "version", "tokenizer", "vocabulary", "dtype", "tokens", "documents",
"checksum", "shards": [{"file", "tokens", "documents", "bytes", "checksum"}]}. A shard's checksum is
that of its header (see format.py), the folder's is over those of the shards: two folders with the
same checksum hold the same tokens.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import xxhash

from trainer_runtime.data.format import Header, Shard, ShardError, ShardWriter, Tokens, read_header

MANIFEST = "manifest.json"
FORMAT = "concertina token shards"
VERSION = 1
DEFAULT_SHARD_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard as the manifest names it."""

    file: str
    tokens: int
    documents: int
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder holds. `vocabulary`: token numbers are below it."""

    tokenizer: str
    vocabulary: int
    dtype: str
    tokens: int
    documents: int
    checksum: str
    shards: tuple[ShardEntry, ...]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.shards)


def digest(shards: list[ShardEntry]) -> str:
    return xxhash.xxh3_64_hexdigest("".join(each.checksum for each in shards).encode())


def read_manifest(folder: Path) -> Manifest:
    """Raises ShardError, naming the file, if the folder isn't one of this format."""
    path = folder / MANIFEST
    try:
        raw: dict[str, Any] = json.loads(path.read_bytes())
        if raw.pop("format") != FORMAT or raw.pop("version") != VERSION:
            raise ShardError(path, 0, f"not {FORMAT!r} of version {VERSION}")
        entries = [ShardEntry(**each) for each in raw.pop("shards")]
        manifest = Manifest(**raw, shards=tuple(entries))
    except FileNotFoundError as error:
        raise ShardError(path, 0, "no such file: not a folder of token shards") from error
    except json.JSONDecodeError as error:
        raise ShardError(path, error.pos, f"not JSON: {error.msg}") from error
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ShardError(path, 0, f"not a manifest: {error!r}") from error
    if digest(entries) != manifest.checksum:
        raise ShardError(path, 0, "its checksum isn't that of the shards it names")
    if sum(each.tokens for each in entries) != manifest.tokens:
        raise ShardError(path, 0, "its number of tokens isn't the sum of the shards'")
    return manifest


def check_header(folder: Path, entry: ShardEntry) -> Header:
    """The header of a shard, which must be the one that the manifest means. Raises ShardError."""
    path = folder / entry.file
    try:
        header = read_header(path)
    except FileNotFoundError as error:
        raise ShardError(path, 0, "no such file, though the manifest names it") from error
    if f"{header.checksum:016x}" != entry.checksum:
        raise ShardError(path, 56, "whole, but not the shard that the manifest names")
    return header


def verify(folder: Path) -> list[ShardError]:
    """What is wrong with the folder: reads all of it and goes on after a bad shard."""
    try:
        manifest = read_manifest(folder)
    except ShardError as error:
        return [error]
    found: list[ShardError] = []
    for entry in manifest.shards:
        try:
            Shard(folder / entry.file, check_header(folder, entry)).verify()
        except ShardError as error:
            found.append(error)
    return found


def sync_folder(folder: Path) -> None:
    """Make the folder's names last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_folder(folder: Path, how: int) -> int | None:
    """A descriptor with the flock `how` on the folder itself, None if another holds it or the
    folder was moved away meanwhile. The lock ends with the descriptor, or with the process."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, how)
        if _is_at(descriptor, folder):
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None


def _is_at(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


class FolderWriter:
    """Writes shards beside `folder` and renames them into place at the end of the `with`; on an
    exception nothing is left. What a killed writer left is removed by the next one.

    Raises FileExistsError if `folder` exists, BlockingIOError if another is writing it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tokenizer: str,
        vocabulary: int,
        shard_bytes: int = DEFAULT_SHARD_BYTES,
    ) -> None:
        if shard_bytes < 1:
            raise ValueError(f"shard_bytes: must be at least 1 (got {shard_bytes})")
        if not 0 < vocabulary <= 1 << 32:
            raise ValueError(f"vocabulary: must be in 1 to 2^32 (got {vocabulary})")
        self.folder, self.tokenizer, self.vocabulary = folder.absolute(), tokenizer, vocabulary
        self.shard_bytes, self.width = shard_bytes, 2 if vocabulary <= 1 << 16 else 4
        self.partial = self.folder.with_name(f".{self.folder.name}.partial")
        self._entries: list[ShardEntry] = []
        self._shard: ShardWriter | None = None
        self._lock: int | None = None

    def __enter__(self) -> FolderWriter:
        self._refuse_existing()
        self.partial.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(self.partial, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._lock is None:
            raise BlockingIOError(f"{self.folder}: another process is writing it; wait for its end")
        self._empty()
        self._refuse_existing()
        return self

    def add(self, tokens: Tokens, *, ends: bool = True) -> None:
        """Tokens [n] of a document; `ends`: it is complete. A shard ends with a document."""
        if len(tokens) and int(tokens.max()) >= self.vocabulary:
            raise ValueError(
                f"token {int(tokens.max())} isn't below the vocabulary's size {self.vocabulary}"
            )
        if self._shard is None:
            self._shard = ShardWriter(self.partial / f"{len(self._entries):05d}.tokens", self.width)
        self._shard.add(tokens, ends=ends)
        if ends and self._shard.tokens * self.width >= self.shard_bytes:
            self._end_shard()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            if self._shard is not None:
                self._shard.abandon()
            if self.partial.exists():
                self._empty()
                self.partial.rmdir()
            if self._lock is not None:
                os.close(self._lock)

    @property
    def tokens(self) -> int:
        held = self._shard.tokens if self._shard else 0
        return sum(each.tokens for each in self._entries) + held

    def _publish(self) -> None:
        self._end_shard()
        if not self._entries:
            raise ValueError(f"{self.folder}: no documents, so nothing was written")
        about = {
            "format": FORMAT, "version": VERSION, "tokenizer": self.tokenizer,
            "vocabulary": self.vocabulary, "dtype": f"uint{8 * self.width}",
            "tokens": self.tokens, "documents": sum(each.documents for each in self._entries),
            "checksum": digest(self._entries), "shards": [asdict(each) for each in self._entries],
        }  # fmt: skip
        with (self.partial / MANIFEST).open("w") as file:
            json.dump(about, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.partial)
        self._refuse_existing()
        self.partial.rename(self.folder)
        sync_folder(self.folder.parent)

    def _end_shard(self) -> None:
        if self._shard is None:
            return
        path, header = self._shard.path, self._shard.close()
        self._shard = None
        path.chmod(0o444)  # a shard that is cut while it is mapped would end its readers
        self._entries.append(
            ShardEntry(
                path.name, header.tokens, header.documents, header.size, f"{header.checksum:016x}"
            )
        )

    def _refuse_existing(self) -> None:
        if self.folder.exists():
            raise FileExistsError(f"{self.folder}: exists; remove it or write to another folder")

    def _empty(self) -> None:
        for each in self.partial.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
