"""Memory-mapped token shards and loaders that start again at any position at once.

Everything is loaded on first use, so that the tools don't wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["MapStyle", "NodeCache", "Prefetcher", "ShardError", "TokenShards", "demo_shards"]

_HOMES = {
    "MapStyle": "trainer_runtime.data.mapstyle",
    "NodeCache": "trainer_runtime.data.cache",
    "Prefetcher": "trainer_runtime.data.prefetch",
    "ShardError": "trainer_runtime.data.format",
    "TokenShards": "trainer_runtime.data.shards",
    "demo_shards": "trainer_runtime.data.demo",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
