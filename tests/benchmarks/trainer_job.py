"""A replica of ours for the benchmarks: trains the small model until it is ended.

    CONCERTINA_AUTHORITY=... python -m tests.benchmarks.trainer_job --commits FILE

Started by `concertina-run`, or by itself beside an authority.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tests.benchmarks.trainer_model import (
    GLOBAL_BATCH,
    MICRO_BATCH,
    SAMPLES,
    CommitLog,
    Data,
    build,
    loss_sum,
)
from trainer_runtime import ElasticTrainer, TrainerOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=Path, required=True)
    parser.add_argument("--micro-batch", type=int, default=MICRO_BATCH)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, optimizer = build()
    data, log = Data(), CommitLog(args.commits)
    options = TrainerOptions.from_env(
        global_batch=GLOBAL_BATCH, micro_batch=args.micro_batch, total_steps=args.steps
    )
    trainer = ElasticTrainer(
        model, optimizer, load=data.batch, loss=lambda batch: loss_sum(model, batch),
        samples=SAMPLES, options=options,
    )  # fmt: skip
    with trainer:
        for done in trainer:
            if not done.adopted:  # else it was committed by the others, and earlier
                log.committed(step=done.step, world=done.world_size, epoch=done.epoch)


if __name__ == "__main__":
    main()
