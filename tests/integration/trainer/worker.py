"""A replica with a small model in float64, for the tests. Writes one JSON line a committed step.

PACE_S makes a step last; STRIKE and STRIKE_FILE are faults (strikes.py). With JOIN_WHEN it joins
when that file is there. At its end it prints what is left in its process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.integration.trainer.strikes import Strikes, StruckAdamW
from trainer_runtime import ElasticTrainer, TrainerOptions

SAMPLES, FEATURES = 97, 6


def left_behind() -> dict[str, list[str]]:
    """Threads, native ones included, and TCP sockets of this process."""
    tasks, files = [], []
    for each in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            tasks.append((each / "comm").read_text().strip())
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own
            files.append(each.readlink())
    return {
        "threads": sorted(each.name for each in threading.enumerate()),
        "tasks": sorted(tasks),
        "sockets": sorted(str(each) for each in files if str(each).startswith("socket:")),
        "shared": sorted(str(each) for each in files if str(each).startswith("/dev/shm")),
    }


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
    strikes, pace = Strikes(), float(os.environ.get("PACE_S", "0"))
    optimizer = StruckAdamW(strikes, [model[:2].parameters(), model[2:].parameters()], lr=0.01)

    def rate(step: int) -> float:
        strikes.at("commit")
        return min(1.0, (step + 1) / 10)

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    def load(indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        strikes.at("load")
        return inputs[list(indices)], wanted[list(indices)]

    def loss(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        strikes.at("forward")
        out = ((model(batch[0]) - batch[1]) ** 2).sum()
        out.register_hook(lambda _: strikes.at("backward"))
        return out

    options = TrainerOptions.from_env(
        global_batch=args.global_batch, micro_batch=args.micro_batch, exact=args.exact,
        total_steps=args.steps, group_timeout=60.0, report_every=0.0,
    )  # fmt: skip
    trainer = ElasticTrainer(
        model, optimizer, load=load, loss=loss, samples=SAMPLES, options=options,
        scheduler=scheduler,
    )  # fmt: skip
    strikes.into(trainer)
    before = left_behind()
    if "JOIN_WHEN" in os.environ:
        print("prepared", flush=True)
        while not Path(os.environ["JOIN_WHEN"]).exists():
            time.sleep(0.005)
    with trainer, args.log.open("a", buffering=1) as log:
        for done in trainer:
            strikes.at("between")
            weights = sum(each.sum().item() for each in model.parameters())
            line = {
                "step": done.step, "loss": done.loss, "epoch": done.epoch, "world": done.world_size,
                "rank": done.rank, "indices": done.indices, "weights": weights,
                "rate": optimizer.param_groups[0]["lr"], "adopted": done.adopted,
            }  # fmt: skip
            log.write(json.dumps(line) + "\n")
            time.sleep(pace)  # between steps, so that a step takes a known least time
    deadline = time.monotonic() + 5
    while True:  # native threads end a moment after they were told to
        after = left_behind()
        left = {
            name: list((Counter(after[name]) - Counter(was)).elements())
            for name, was in before.items()
        }
        if not any(left.values()) or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    print("left:", json.dumps(left), flush=True)


if __name__ == "__main__":
    main()
