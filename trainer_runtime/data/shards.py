"""Samples of a fixed length out of a folder of token shards, memory-mapped.

Sample i is the tokens [i * length, i * length + length] of all documents one after the other:
`length` inputs and, one further on, as many targets. Neighbours share one token. Which sample comes
when is the sampler's business (sampler.py).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trainer_runtime.data.cache import NodeCache
from trainer_runtime.data.folder import check_header, read_manifest
from trainer_runtime.data.format import Shard

Verify = Literal["touch", "open", "never"]


class TokenShards:
    """`verify`: "touch" checks each block of 64 KiB when it is first read, "open" all at once
    before the first sample, "never" headers and sizes only, which are always checked here.

    `cache`: a node's cache, for a source that is slow; the folder is copied into it first.
    Raises ShardError (naming file and byte) here or at the sample that lies in a corrupt block, and
    OSError. Can be pickled and used by several threads.
    """

    def __init__(
        self,
        folder: str | Path,
        length: int,
        *,
        verify: Verify = "touch",
        cache: NodeCache | None = None,
    ) -> None:
        if length < 1:
            raise ValueError(f"length: must be at least 1 (got {length})")
        if verify not in ("touch", "open", "never"):
            raise ValueError(f"verify: must be touch, open or never (got {verify!r})")
        self.source, self.length, self.verify = Path(folder), length, verify
        self._cache = cache
        self._lease = cache.lease(self.source) if cache else None
        self.folder = self._lease.folder if self._lease else self.source
        self.manifest = read_manifest(self.folder)
        if self.manifest.tokens <= length:
            raise ValueError(
                f"{self.folder}: {self.manifest.tokens} tokens are too few for a sample of "
                f"{length}; it takes {length + 1}"
            )
        entries = self.manifest.shards
        self._headers = [check_header(self.folder, entry) for entry in entries]
        self._starts = [0, *accumulate(entry.tokens for entry in entries)]
        self._shards: list[Shard | None] = [None] * len(entries)
        self._lock = threading.Lock()
        if verify == "open":
            for number in range(len(entries)):
                self._shard(number).verify()

    def __len__(self) -> int:
        return (self.manifest.tokens - 1) // self.length

    def __getitem__(self, index: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """[length + 1], so that this is a map-style dataset too."""
        return self.batch([index])[0]

    def batch(self, indices: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """[len(indices), length + 1] token numbers. Raises IndexError and ShardError."""
        rows = np.empty((len(indices), self.length + 1), dtype=np.int64)
        for row, index in zip(rows, indices, strict=True):
            if not 0 <= index < len(self):
                raise IndexError(f"sample {index}: {self.folder} has {len(self)}")
            self._fill(row, index * self.length)
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.source, self.length, self.verify, self._cache)

    def close(self) -> None:
        """Let go of the files; a cache may then evict the folder."""
        for shard in self._shards:
            if shard is not None:
                shard.close()
        self._shards = [None] * len(self._shards)
        if self._lease is not None:
            self._lease.release()

    def _fill(self, row: np.ndarray[Any, Any], at: int) -> None:
        """The tokens from `at` on, which may lie in several shards."""
        done = 0
        number = bisect_right(self._starts, at) - 1
        while done < len(row):
            start, end = self._starts[number], self._starts[number + 1]
            count = min(len(row) - done, end - at)
            if count > 0:
                row[done : done + count] = self._shard(number).read(at - start, at - start + count)
            done, at, number = done + count, at + count, number + 1

    def _shard(self, number: int) -> Shard:
        shard = self._shards[number]
        if shard is None:
            with self._lock:
                shard = self._shards[number]
                if shard is None:
                    path = self.folder / self.manifest.shards[number].file
                    check = self.verify != "never"
                    shard = Shard(path, self._headers[number], check=check)
                    self._shards[number] = shard
        return shard


def _again(folder: Path, length: int, verify: Verify, cache: NodeCache | None) -> TokenShards:
    return TokenShards(folder, length, verify=verify, cache=cache)
