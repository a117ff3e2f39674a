"""The published elastic style: train until an event, save, return, and be started again.

    concertina-run --replicas 1 --nproc-per-node 2 -m trainer_runtime.examples.save_and_return a.pt

All ranks are one replica, so a resize stops them all: SIGTERM to the launcher, or a drain, ends
them after the same step with a checkpoint. Start it again with another --nproc-per-node and it
goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainer_runtime.compat import elastic_event_detected

GLOBAL_BATCH, FEATURES = 24, 8


def batch(step: int, rank: int, world: int) -> torch.Tensor:
    """[GLOBAL_BATCH / world, FEATURES]: this rank's share of a step's samples."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(GLOBAL_BATCH, FEATURES, generator=generator)[rank::world]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = 0
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    wrapped = DistributedDataParallel(model)
    print(f"rank {rank} of {world} begins after step {step}", flush=True)
    while step < args.steps:
        step += 1
        inputs = batch(step, rank, world)
        loss = ((wrapped(inputs) - inputs.sum(1, keepdim=True).sin()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if elastic_event_detected():
            break
    if rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        partial = args.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(args.checkpoint)
    print(f"rank {rank} of {world} saved after step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
