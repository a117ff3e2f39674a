"""One transactional step: this replica's share, the reduction, and the commit gate.

A step is applied by every survivor or by none: a replica that finished the reduction has the sum of
all shares, so applying it is right whoever dies then; one that could not apply it takes the state
over from one that did (see rendezvous.py). An optimizer whose state is sharded across replicas
applies its shards and then exchanges what they came to; the step is committed after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer_runtime.batch import applied
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
    """A committed step: `step` counts from 1, `loss` is the mean over the global batch (by weight,
    where the script gives weights), `indices` the samples of this replica's share, `samples` those
    of all. `grad_norm` is known where gradients are clipped. `adopted`: the peers committed it with
    this replica's share while it was cut off, and it took the result over from them."""

    step: int
    loss: float
    epoch: int
    world_size: int
    rank: int
    indices: tuple[int, ...]
    adopted: bool = False
    samples: int = 0
    learning_rate: float = 0.0
    grad_norm: float | None = None
    #: by rank, the seconds that it computed (forward and backward of its share)
    work_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The step that is being tried, until it is committed here."""

    step: int
    epoch: int
    indices: tuple[int, ...]


class Told:
    """What ranks tell each other beside gradients, in one vector that is summed: by shard its loss
    and its weight, by rank whether it wants to stop and its seconds of work. Each number is filled
    in by its owner alone, so that adding is exact."""

    def __init__(self, shards: int, ranks: int) -> None:
        self.values = torch.zeros(2 * shards + 2 * ranks, dtype=torch.float64)
        self.losses = self.values[:shards]
        self.weights = self.values[shards : 2 * shards]
        self.stops = self.values[2 * shards : 2 * shards + ranks]
        self.work = self.values[2 * shards + ranks :]


class Stepper:
    """`load(indices)` gives a batch, `loss(batch)` the sum of its samples' losses, or that and the
    sum of their weights (tokens, say): the gradient is then that of the mean by weight."""

    def __init__(
        self,
        state: ReplicaState,
        client: Client,
        options: TrainerOptions,
        load: Callable[[Sequence[int]], Any],
        loss: Callable[[Any], Any],
    ) -> None:
        self.state, self.client, self.options = state, client, options
        self.gradients = Gradients(state.model.parameters())
        self.under_way: UnderWay | None = None
        #: an optimizer's step began and hasn't been finished: the state is neither old nor new
        self.torn = False
        self._load, self._loss, self._worked = load, loss, 0.0
        self._plan = getattr(load, "plan", None)

    def run(self, group: Group, clock: StageClock | None) -> tuple[StepResult, bool]:
        """The committed step, and whether all agreed to stop after it. Raises GroupError or
        Superseded when it came to nothing, and what `load` and `loss` raise. `clock` measures a
        recovery that this step ends."""
        options, counters, self.torn = self.options, self.state.counters, False
        samples = options.batch.size(group.size)
        indices = self.state.sampler.batch(samples)
        owned = shares(-(-samples // options.micro_batch), group.size)
        mine = owned[group.rank]
        used = tuple(indices[mine.start * options.micro_batch : mine.stop * options.micro_batch])
        self.under_way = UnderWay(counters.step + 1, group.epoch, used)
        self._announce(indices, mine, samples)
        told = Told(sum(map(len, owned)), group.size)
        kept = self._compute(indices, mine, told, clock)
        told.work[group.rank] = self._worked
        self.client.working(Phase.REDUCE)
        told.stops[group.rank] = 1.0 if self.client.pending else 0.0
        if options.exact:
            group.sum([told.values])
            owners = [rank for rank, share in enumerate(owned) for _ in share]
            self.gradients.sum_in_order(group, kept, owners)
        else:
            group.sum([*self.gradients.buffers, told.values])
        self.client.working(Phase.COMPUTE)
        # Everybody sees the same sums: all stop after this step, or nobody.
        stopping = bool(told.stops.all())
        weight = sum(told.weights.tolist())
        if weight <= 0:
            raise ValueError(f"loss: the weights of step {counters.step + 1} sum up to {weight:g}")
        if weight != samples:
            self.gradients.scale(samples / weight)
        loss = sum(told.losses.tolist()) / weight
        norm, rate = self._apply(group, samples)
        self._commit(group, loss, samples)
        self.under_way = None
        result = StepResult(
            counters.step, loss, group.epoch, group.size, group.rank, used, samples=samples,
            learning_rate=rate, grad_norm=norm, work_s=tuple(told.work.tolist()),
        )  # fmt: skip
        return result, stopping

    def rehearse(self) -> None:
        """Forward and backward of the job's first micro-batch, for its side effects."""
        self.gradients.zero()
        indices = self.state.sampler.at(0, self.options.micro_batch)
        loss, _ = self._loss_of(self._load(indices), len(indices))
        (loss / self.options.global_batch).backward()

    def adopted(self, group: Group) -> StepResult | None:
        """The step that failed here, if the peers committed it with this replica's share."""
        tried, self.under_way = self.under_way, None
        counters = self.state.counters
        if tried is None or (tried.step, tried.epoch) != (counters.step, counters.epoch):
            return None
        return StepResult(
            counters.step, counters.loss, counters.epoch, group.size, group.rank, tried.indices,
            adopted=True, samples=self.options.global_batch,
        )  # fmt: skip

    def _announce(self, indices: list[int], mine: range, samples: int) -> None:
        """Tell a loader that reads ahead what this step and, all going well, the next one use."""
        if self._plan is None:
            return
        size, sampler = self.options.micro_batch, self.state.sampler
        after = sampler.at(sampler.cursor + samples, samples)
        self._plan(
            [tuple(each[n * size : (n + 1) * size]) for each in (indices, after) for n in mine]
        )

    def _loss_of(self, batch: Any, samples: int) -> tuple[torch.Tensor, float]:
        given = self._loss(batch)
        if isinstance(given, tuple):
            loss, weight = given
            return loss, float(weight)
        return given, float(samples)

    def _compute(
        self, indices: list[int], mine: range, told: Told, clock: StageClock | None
    ) -> dict[int, list[torch.Tensor]]:
        """Forward and backward of this replica's micro-batches. Fills in their summed losses and
        weights; returns, for ordered summation, each one's gradient."""
        options, loading, scaler = self.options, 0.0, self.state.scaler
        samples, started = len(indices), time.monotonic()
        kept: dict[int, list[torch.Tensor]] = {}
        self.gradients.zero()
        for shard in mine:
            self.client.working(Phase.COMPUTE)
            if self.client.superseded is not None:
                raise Superseded
            # By shard, not by replica: dropout is the same whoever computes it.
            torch.manual_seed(mix(options.seed, self.state.counters.step + 1, shard))
            start, began = shard * options.micro_batch, time.monotonic()
            used = indices[start : start + options.micro_batch]
            batch = self._load(used)
            loading += time.monotonic() - began
            loss, weight = self._loss_of(batch, len(used))
            scaled = loss / samples
            (scaled if scaler is None else scaler.scale(scaled)).backward()
            told.losses[shard], told.weights[shard] = loss.item(), weight
            if options.exact:
                kept[shard] = self.gradients.copy()
                self.gradients.zero()
        self._worked = time.monotonic() - started - loading
        if clock is not None:
            clock.end(RecoveryStage.FIRST_STEP)
            clock.move(RecoveryStage.FIRST_STEP, RecoveryStage.DATA_LOADER, loading)
        return kept

    def _apply(self, group: Group, samples: int) -> tuple[float | None, float]:
        """The gate: under the client's lock, so that no notice can come in between. Returns the
        gradient's norm, where known, and the learning rate that was used."""
        state, options, norm = self.state, self.options, None
        optimizer, scaler = state.optimizer, state.scaler
        rule, step = options.batch, state.counters.step
        with self.client.commit(group.epoch, alone=group.size == 1) as allowed:
            if not allowed:
                raise Superseded
            self.torn = True
            factor = state.ramp.aim(rule.factor(samples), step, rule.ramp_steps)
            if scaler is not None:
                scaler.unscale_(optimizer)
            if options.max_grad_norm is not None:
                norm = self.gradients.clip(options.max_grad_norm)
            with applied(optimizer, factor):
                rate = float(optimizer.param_groups[0]["lr"])
                if scaler is None:
                    optimizer.step()
                else:
                    scaler.step(optimizer)
                    scaler.update()
        return norm, rate

    def _commit(self, group: Group, loss: float, samples: int) -> None:
        """Everybody who took part in the exchange has applied the step: it stands."""
        state, counters = self.state, self.state.counters
        exchange = getattr(state.optimizer, "exchange", None)
        if exchange is not None:
            self.client.working(Phase.REDUCE)
            exchange(group)
            self.client.working(Phase.COMPUTE)
        with self.client.locked():
            if state.scheduler is not None:
                state.scheduler.step()
            state.sampler.advance(samples)
            counters.step += 1
            counters.samples += samples
            counters.epoch, counters.loss = group.epoch, loss
            self.client.claim.step = counters.step
            self.torn = False
