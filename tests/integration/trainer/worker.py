"""A replica with a small model in float64, for the tests. Writes one JSON line a committed step.

FAULT=kill:LOAD_CALLS or FAULT=raise:LOAD_CALLS ends it (SIGKILL to itself, an exception) in the
middle of a step; PACE_S makes a step last; STALL_AT=STEP stands still in a step until the file
named by STALL_WHILE is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from trainer_runtime import ElasticTrainer, TrainerOptions

SAMPLES, FEATURES = 97, 6


class Fault:
    """Strikes in the middle of a step: when its number of committed steps is reached."""

    def __init__(self, text: str) -> None:
        self.kind, _, at = text.partition(":")
        self.at = int(at or -1)

    def strike(self, step: int) -> None:
        if self.kind and step >= self.at:
            if self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the script's own fault")


def stall(step: int) -> None:
    at, while_there = os.environ.get("STALL_AT"), os.environ.get("STALL_WHILE", "")
    if at is not None and step >= int(at):
        while Path(while_there).exists():
            time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--global-batch", type=int, default=12)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dtype = torch.float32 if args.float32 else torch.float64
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator, dtype=dtype)
    wanted = torch.sin(inputs.sum(1, keepdim=True))
    torch.manual_seed(args.seed)  # replicas may differ here: they take over the first one's state
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Dropout(0.1),
        torch.nn.Linear(16, 1),
    ).to(dtype)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 10))
    fault, pace = Fault(os.environ.get("FAULT", "")), float(os.environ.get("PACE_S", "0"))

    def load(indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        step = trainer.state.counters.step if trainer.quorum is not None else -1
        fault.strike(step)
        stall(step)
        return inputs[list(indices)], wanted[list(indices)]

    def loss(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return ((model(batch[0]) - batch[1]) ** 2).sum()

    options = TrainerOptions.from_env(
        global_batch=args.global_batch, micro_batch=args.micro_batch, exact=args.exact,
        total_steps=args.steps, group_timeout=60.0, report_every=0.0,
    )  # fmt: skip
    trainer = ElasticTrainer(
        model, optimizer, load=load, loss=loss, samples=SAMPLES, options=options,
        scheduler=scheduler,
    )  # fmt: skip
    with trainer, args.log.open("a", buffering=1) as log:
        for done in trainer:
            weights = sum(each.sum().item() for each in model.parameters())
            line = {
                "step": done.step, "loss": done.loss, "epoch": done.epoch, "world": done.world_size,
                "rank": done.rank, "indices": done.indices, "weights": weights,
                "rate": optimizer.param_groups[0]["lr"], "adopted": done.adopted,
            }  # fmt: skip
            log.write(json.dumps(line) + "\n")
            time.sleep(pace)  # between steps, so that a step takes a known least time


if __name__ == "__main__":
    main()
