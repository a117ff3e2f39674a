"""Elastic data-parallel training for PyTorch.

Everything is loaded on first use: `import trainer_runtime.wire` leaves torch out, so that the
control plane can read the messages without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["ElasticSampler", "ElasticTrainer", "StepResult", "TrainerOptions"]

_HOMES = {
    "ElasticSampler": "trainer_runtime.sampler",
    "ElasticTrainer": "trainer_runtime.trainer",
    "StepResult": "trainer_runtime.step",
    "TrainerOptions": "trainer_runtime.options",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
