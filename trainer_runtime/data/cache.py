"""A node's copy of shard folders from a slow place, shared by all processes and their successors.

One folder a dataset, named by its checksum, copied whole or not at all and checked while it is
copied. One lock a cache lets a single process copy and evict; who reads an entry holds a shared
lock on it, so that it isn't evicted. Locks end with their process, whatever ends it: nothing has
to be cleaned up but what a killed copy left, and the next copy does that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainer_runtime.data.folder import MANIFEST, lock_folder, read_manifest, sync_folder, verify

DEFAULT_LIMIT_GIB = 64.0


class Lease:
    """An entry of the cache in use, until released or the process ends."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder, self._descriptor = folder, descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.release()


class NodeCache:
    """At most `limit_gib` in `folder`; the least recently opened go first."""

    def __init__(self, folder: str | Path, *, limit_gib: float = DEFAULT_LIMIT_GIB) -> None:
        if limit_gib <= 0:
            raise ValueError(f"limit_gib: must be above 0 (got {limit_gib})")
        self.folder, self.limit = Path(folder), int(limit_gib * (1 << 30))

    def lease(self, source: Path) -> Lease:
        """The copy of a folder of shards, made if there is none; waits for another's copy of it.
        Raises ShardError if the source is damaged, OSError if there is no room."""
        manifest = read_manifest(source)
        entry = self.folder / f"tokens-{manifest.checksum}"
        if (lease := self._use(entry)) is not None:
            return lease
        with self._alone():
            if (lease := self._use(entry)) is not None:
                return lease
            self._sweep()
            need = manifest.bytes
            self._make_room(need, source)
            partial = self.folder / f".{entry.name}.partial"
            try:
                partial.mkdir()
                for shard in manifest.shards:
                    _copy(source / shard.file, partial / shard.file)
                _copy(source / MANIFEST, partial / MANIFEST)
                for error in verify(partial):
                    raise error
                sync_folder(partial)
                partial.rename(entry)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            lease = self._use(entry)
            assert lease is not None  # nobody evicts while we are alone
            return lease

    def entries(self) -> list[Path]:
        """What is held, the least recently opened first."""
        found = [each for each in self.folder.glob("tokens-*") if each.is_dir()]
        return sorted(found, key=lambda each: each.stat().st_mtime_ns)

    def _use(self, entry: Path) -> Lease | None:
        descriptor = lock_folder(entry, fcntl.LOCK_SH)
        if descriptor is None:
            return None
        os.utime(entry)
        return Lease(entry, descriptor)

    def _make_room(self, need: int, source: Path) -> None:
        held = {entry: _bytes(entry) for entry in self.entries()}
        for entry in list(held):
            if need + sum(held.values()) <= self.limit:
                return
            descriptor = lock_folder(entry, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if descriptor is None:
                continue  # in use
            try:
                gone = entry.rename(entry.with_name(f".{entry.name}.evicted"))
                shutil.rmtree(gone)
                del held[entry]
            finally:
                os.close(descriptor)
        if need + sum(held.values()) > self.limit:
            raise OSError(
                f"{self.folder}: {source} takes {need} bytes, {sum(held.values())} are in use and "
                f"the cache's limit is {self.limit}; raise limit_gib, or train from the source "
                "without a cache"
            )

    def _sweep(self) -> None:
        """Under the cache's lock whatever isn't an entry was left by a process that died."""
        for pattern in (".tokens-*.partial", ".tokens-*.evicted"):
            for left in self.folder.glob(pattern):
                shutil.rmtree(left)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir())


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
