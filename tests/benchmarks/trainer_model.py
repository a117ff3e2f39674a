"""The small model that all trainer benchmarks train, and the log of what was committed.

3.1 million parameters, AdamW, 768 samples a step: about 200 ms on two cores, whatever the number of
replicas, since the global batch stays. Steps take their time by computing, none by sleeping.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional

WIDTH, LAYERS = 512, 12
GLOBAL_BATCH = 768
MICRO_BATCH = 64  # twelve shares: 1, 2, 3, 4 and 6 replicas get the same
SAMPLES = 4 * GLOBAL_BATCH


def build() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Model and optimizer, the same in every process."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


class Data:
    """Random inputs; the wanted output is the input."""

    def __init__(self) -> None:
        self.inputs = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))

    def batch(self, indices: Sequence[int]) -> torch.Tensor:
        return self.inputs[list(indices)]


def loss_sum(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Over the samples of a batch; of each, the mean over its values."""
    return functional.mse_loss(model(batch), batch, reduction="sum") / WIDTH


class CommitLog:
    """One line a committed step. `at` is on the monotonic clock, which all processes share;
    `epoch` changes with the group."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def committed(self, *, step: int, world: int, epoch: int, at: float | None = None) -> None:
        line = {
            "at": time.monotonic() if at is None else at, "pid": os.getpid(), "step": step,
            "world": world, "epoch": epoch,
        }  # fmt: skip
        os.write(self._file, (json.dumps(line) + "\n").encode())  # whole, beside other writers
