"""One transactional step: this replica's share, the reduction, and the commit gate.

A step is applied by every survivor or by none: a replica that finished the reduction has the sum of
all shares, so applying it is right whoever dies then; one that could not apply it takes the state
over from one that did (see rendezvous.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer_runtime.client import Client
from trainer_runtime.gradients import Gradients
from trainer_runtime.group import Group
from trainer_runtime.options import TrainerOptions
from trainer_runtime.protocol import Phase
from trainer_runtime.replica import ReplicaState
from trainer_runtime.sampler import mix, shares
from trainer_runtime.stages import StageClock
from trainer_runtime.wire import RecoveryStage


class Superseded(Exception):
    """The epoch went out of force while a step was under way."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """A committed step: `step` counts from 1, `loss` is the mean over the global batch, `indices`
    the samples of this replica's share. `adopted`: the peers committed it with this replica's share
    while it was cut off, and it took the result over from them."""

    step: int
    loss: float
    epoch: int
    world_size: int
    rank: int
    indices: tuple[int, ...]
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The step that is being tried, until it is committed here."""

    step: int
    epoch: int
    indices: tuple[int, ...]


class Stepper:
    """`load(indices)` gives a batch, `loss(batch)` the sum of its samples' losses."""

    def __init__(
        self,
        state: ReplicaState,
        client: Client,
        options: TrainerOptions,
        load: Callable[[Sequence[int]], Any],
        loss: Callable[[Any], torch.Tensor],
    ) -> None:
        self.state, self.client, self.options = state, client, options
        self.gradients = Gradients(state.model.parameters())
        self.under_way: UnderWay | None = None
        self._load, self._loss = load, loss

    def run(self, group: Group, clock: StageClock | None) -> tuple[StepResult, bool]:
        """The committed step, and whether all agreed to stop after it. Raises GroupError or
        Superseded when it came to nothing, and what `load` and `loss` raise. `clock` measures a
        recovery that this step ends."""
        options, counters = self.options, self.state.counters
        indices = self.state.sampler.batch()
        owned = shares(options.shards, group.size)
        mine = owned[group.rank]
        used = tuple(indices[mine.start * options.micro_batch : mine.stop * options.micro_batch])
        self.under_way = UnderWay(counters.step + 1, group.epoch, used)
        # Each shard's loss is filled in by its owner, so that adding them up on all is exact.
        losses = torch.zeros(options.shards + 1, dtype=torch.float64)
        kept = self._compute(indices, mine, losses, clock)
        self.client.working(Phase.REDUCE)
        losses[-1] = 1.0 if self.client.pending else 0.0
        if options.exact:
            group.sum([losses])
            owners = [rank for rank, share in enumerate(owned) for _ in share]
            self.gradients.sum_in_order(group, kept, owners)
        else:
            group.sum([*self.gradients.buffers, losses])
        self.client.working(Phase.COMPUTE)
        if options.max_grad_norm is not None:
            self.gradients.clip(options.max_grad_norm)
        # Everybody sees the same sum: all stop after this step, or nobody.
        stopping = int(losses[-1]) == group.size
        loss = sum(losses[:-1].tolist()) / options.global_batch
        self._commit(group, loss)
        self.under_way = None
        result = StepResult(counters.step, loss, group.epoch, group.size, group.rank, used)
        return result, stopping

    def rehearse(self) -> None:
        """Forward and backward of the job's first micro-batch, for its side effects."""
        self.gradients.zero()
        indices = self.state.sampler.at(0, self.options.micro_batch)
        (self._loss(self._load(indices)) / self.options.global_batch).backward()

    def adopted(self, group: Group) -> StepResult | None:
        """The step that failed here, if the peers committed it with this replica's share."""
        tried, self.under_way = self.under_way, None
        counters = self.state.counters
        if tried is None or (tried.step, tried.epoch) != (counters.step, counters.epoch):
            return None
        return StepResult(
            counters.step, counters.loss, counters.epoch, group.size, group.rank, tried.indices,
            adopted=True,
        )  # fmt: skip

    def _compute(
        self, indices: list[int], mine: range, losses: torch.Tensor, clock: StageClock | None
    ) -> dict[int, list[torch.Tensor]]:
        """Forward and backward of this replica's micro-batches. Fills in their summed losses;
        returns, for ordered summation, each one's gradient."""
        options, loading = self.options, 0.0
        kept: dict[int, list[torch.Tensor]] = {}
        self.gradients.zero()
        for shard in mine:
            self.client.working(Phase.COMPUTE)
            if self.client.superseded is not None:
                raise Superseded
            # By shard, not by replica: dropout is the same whoever computes it.
            torch.manual_seed(mix(options.seed, self.state.counters.step + 1, shard))
            start, began = shard * options.micro_batch, time.monotonic()
            batch = self._load(indices[start : start + options.micro_batch])
            loading += time.monotonic() - began
            loss = self._loss(batch)
            (loss / options.global_batch).backward()
            losses[shard] = loss.item()
            if options.exact:
                kept[shard] = self.gradients.copy()
                self.gradients.zero()
        if clock is not None:
            clock.end(RecoveryStage.FIRST_STEP)
            clock.move(RecoveryStage.FIRST_STEP, RecoveryStage.DATA_LOADER, loading)
        return kept

    def _commit(self, group: Group, loss: float) -> None:
        """The gate: under the client's lock, so that no notice can come in between."""
        state, counters = self.state, self.state.counters
        with self.client.commit(group.epoch, alone=group.size == 1) as allowed:
            if not allowed:
                raise Superseded
            state.optimizer.step()
            if state.scheduler is not None:
                state.scheduler.step()
            state.sampler.advance()
            counters.step += 1
            counters.samples += self.options.global_batch
            counters.epoch, counters.loss = group.epoch, loss
            self.client.claim.step = counters.step
