"""The demo corpus (examples/corpus.py) as token shards: bytes of the standard library's sources."""

from __future__ import annotations

import fcntl
import sys
import sysconfig
from pathlib import Path

import numpy as np

from trainer_runtime.data.folder import FolderWriter
from trainer_runtime.data.tokenizers import Bytes
from trainer_runtime.examples.corpus import cache_folder, sources


def demo_shards(cache: Path | None = None) -> Path:
    """The corpus' folder, built at the first call and kept in `cache` (by default
    CONCERTINA_CACHE_DIR, else the user's cache); a module is a document. Raises OSError."""
    cache = cache or cache_folder()
    folder = cache / f"stdlib-{'.'.join(map(str, sys.version_info[:3]))}.shards"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".stdlib.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # replicas of a node start at once: one builds it
        if not folder.exists():
            tokenizer = Bytes()
            with FolderWriter(
                folder, tokenizer=tokenizer.name, vocabulary=tokenizer.vocabulary
            ) as writer:
                for source in sources(Path(sysconfig.get_path("stdlib"))):
                    writer.add(np.frombuffer(source.read_bytes() + b"\n", dtype=np.uint8))
    return folder
