"""How long the first batch takes after a recovery. Figures, no assertions.

.venv/bin/python -m tests.benchmarks.trainer_data
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trainer_runtime.data.folder import FolderWriter
from trainer_runtime.data.prefetch import Prefetcher
from trainer_runtime.data.shards import TokenShards
from trainer_runtime.sampler import ElasticSampler

LENGTH, BATCH, TOKENS = 2048, 8, 1 << 26


def _median_ms(rounds: int, once: Callable[[int], object], before: Callable[[], None]) -> float:
    times = []
    for number in range(rounds):
        before()
        began = time.perf_counter()
        once(number)
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def _drop(folder: Path) -> None:
    """Out of the page cache, as far as the kernel goes along."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(rounds: int = 20) -> dict[str, float]:
    """Medians in ms of 8 samples of 2,048 tokens out of 64 Mi tokens in 8 shards. `redo`: a
    survivor repeats its step; `resized`: it gets a share that wasn't read ahead; `restarted`: a
    new loader opens the shards, finds the place in the order and reads; `cold`: that without page
    cache."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as temporary:
        folder = Path(temporary) / "shards"
        with FolderWriter(
            folder, tokenizer="random", vocabulary=50000, shard_bytes=16 << 20
        ) as writer:
            random = np.random.default_rng(0)
            for _ in range(TOKENS >> 16):
                writer.add(random.integers(0, 50000, 1 << 16))

        def restart(number: int) -> None:
            shards = TokenShards(folder, LENGTH)
            shards.batch(ElasticSampler(len(shards), BATCH).at(number * BATCH, BATCH))

        shards = TokenShards(folder, LENGTH)
        sampler = ElasticSampler(len(shards), BATCH)
        with Prefetcher(shards.batch) as prefetcher:
            kept = sampler.at(0, BATCH)
            prefetcher(kept)
            return {
                "redo": _median_ms(rounds, lambda n: prefetcher(kept), lambda: None),
                "resized": _median_ms(
                    rounds, lambda n: prefetcher(sampler.at((n + 1) * BATCH, BATCH)), lambda: None
                ),
                "restarted": _median_ms(rounds, restart, lambda: None),
                "cold": _median_ms(rounds, restart, lambda: _drop(folder)),
            }


def measure_first_batch() -> float:
    """Milliseconds: the slowest of the ways back with a warm page cache, which a node keeps."""
    found = measure()
    return max(found[name] for name in ("redo", "resized", "restarted"))


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:>10} {value:8.3f} ms")
