"""A replica with a small model in float64, for the tests. Writes one JSON line a committed step.

FAULT=kill:N or FAULT=raise:N ends it (SIGKILL to itself, an exception) in the middle of a step, N
steps after it joined; PACE_S makes a step last; STALL_AT=N stands still in that step until the file
named by STALL_WHILE is gone. DIE_IN=receive:N or DIE_IN=send:N kills it in the N-th hand-over.
With JOIN_WHEN it joins when that file is there. At its end it prints what is left in its process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from trainer_runtime import ElasticTrainer, TrainerOptions, transfer
from trainer_runtime.group import Group

SAMPLES, FEATURES = 97, 6


class Fault:
    """Strikes in the middle of a step, once, some steps after this replica's first."""

    def __init__(self) -> None:
        self.kind, _, after = os.environ.get("FAULT", "").partition(":")
        self.after = int(after or 0)
        self.stall_after = int(os.environ.get("STALL_AT", "-1"))
        self.stall_while = Path(os.environ.get("STALL_WHILE", ""))
        self.first: int | None = None

    def strike(self, step: int) -> None:
        self.first = step if self.first is None else self.first
        if self.kind and step - self.first >= self.after:
            if self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the script's own fault")
        if 0 <= self.stall_after <= step - self.first:
            while self.stall_while.exists():
                time.sleep(0.01)


def die_in(text: str) -> None:
    """In its N-th hand-over of state this process ends, while its peer waits for data."""
    if not text:
        return
    name, _, number = text.partition(":")
    real, calls = getattr(transfer, name), 0

    def handed_over(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == int(number):
            setattr(Group, f"start_{name}", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        return real(*args)

    setattr(transfer, name, handed_over)


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
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 10))
    fault, pace = Fault(), float(os.environ.get("PACE_S", "0"))

    def load(indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        if trainer.quorum is not None:  # not in the rehearsal
            fault.strike(trainer.state.counters.step)
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
    die_in(os.environ.get("DIE_IN", ""))
    before = left_behind()
    if "JOIN_WHEN" in os.environ:
        print("prepared", flush=True)
        while not Path(os.environ["JOIN_WHEN"]).exists():
            time.sleep(0.005)
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
