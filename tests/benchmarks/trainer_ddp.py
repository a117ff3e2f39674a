"""Plain DDP on the small model, for torchrun: with `--checkpoint FILE` every step is saved there by
rank 0, and a new start goes on from it.

    torchrun ... -m tests.benchmarks.trainer_ddp --commits FILE [--checkpoint FILE]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.benchmarks.trainer_model import (
    GLOBAL_BATCH,
    SAMPLES,
    CommitLog,
    Data,
    build,
    loss_sum,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    model, optimizer = build()
    data, log, step = Data(), CommitLog(args.commits), 0
    if args.checkpoint is not None and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, mmap=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    replicated = DistributedDataParallel(model)
    share = GLOBAL_BATCH // world
    while step != args.steps:
        first = (step * GLOBAL_BATCH + rank * share) % SAMPLES
        optimizer.zero_grad()
        (loss_sum(replicated, data.batch(range(first, first + share))) / share).backward()
        optimizer.step()
        step += 1
        log.committed(step=step, world=world, epoch=restarts)
        if rank == 0 and args.checkpoint is not None:
            partial = args.checkpoint.with_suffix(".partial")
            state = {
                "model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
            }  # fmt: skip
            torch.save(state, partial)
            partial.replace(args.checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
