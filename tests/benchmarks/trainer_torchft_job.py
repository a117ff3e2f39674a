"""A replica under torchft for the benchmarks: its Manager, DDP and optimizer around the small
model. Run with torchft on PYTHONPATH (trainer_torchft.py).

    python -m tests.benchmarks.trainer_torchft_job lighthouse --address FILE
    TORCHFT_LIGHTHOUSE=... python -m tests.benchmarks.trainer_torchft_job replica --commits FILE
"""

from __future__ import annotations

import argparse
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.benchmarks.trainer_model import (
    GLOBAL_BATCH,
    SAMPLES,
    CommitLog,
    Data,
    build,
    loss_sum,
)

# Ten times the usual step. Survivors that aren't the dead one's neighbours wait this long.
TIMEOUT = timedelta(seconds=2)


def lighthouse(address: Path) -> None:
    """Serves until it is ended. A silent replica is given up after 1 s, of 5 s by default."""
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100, quorum_tick_ms=50,
        heartbeat_timeout_ms=1000,
    )  # fmt: skip
    partial = address.with_suffix(".partial")
    partial.write_text(server.address())
    partial.replace(address)
    signal.pause()


def replica(path: Path) -> None:
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    model, plain = build()

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
        timeout=TIMEOUT, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        replica_id=f"replica-{os.getpid()}", hostname="127.0.0.1",
    )  # fmt: skip
    replicated: Any = DistributedDataParallel(manager, model)
    optimizer: Any = Optimizer(manager, plain)
    data, log = Data(), CommitLog(path)
    while True:
        optimizer.zero_grad()  # asks for the quorum
        manager.wait_quorum()
        world, rank = manager.num_participants(), manager.participating_rank() or 0
        share = GLOBAL_BATCH // world  # as far as it goes: torchft keeps no exact batch
        first = (manager.current_step() * GLOBAL_BATCH + rank * share) % (SAMPLES - share + 1)
        batch = data.batch(range(first, first + share))
        (loss_sum(replicated, batch) / share).backward()
        before = manager.current_step()
        optimizer.step()
        if manager.current_step() > before:
            log.committed(step=before + 1, world=world, epoch=manager._quorum_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("lighthouse", "replica"))
    parser.add_argument("--address", type=Path)
    parser.add_argument("--commits", type=Path)
    args = parser.parse_args()
    if args.what == "lighthouse":
        lighthouse(args.address)
    else:
        replica(args.commits)


if __name__ == "__main__":
    main()
