"""How fast a measured training application goes: by placement, batch size and progress.

The tables and the model are those of Pollux (OSDI 2021, section 3 and artifact): a step of batch
size B brings the progress of `gain(B)` steps at the initial batch size, so progress and remaining
work are counted in steps at the initial batch size.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.simulator.tables import StepTimes

#: ratio between the batch sizes that `best_batch` tries; 1.02 would raise the rates of Pollux's
#: applications by at most 2 %, but deepspeech2's by 3 % and yolov3's by 6 %
BATCH_RATIO = 1.1


@dataclass(frozen=True, slots=True)
class Epoch:
    """What was measured in one epoch at one batch size."""

    progress: float
    grad_sqr: float
    grad_var: float


@dataclass(slots=True)
class Application:
    """One measured application. `epochs`: by batch size, a row an epoch; `largest_local`: samples
    an accelerator at most. Use `read`."""

    name: str
    times: StepTimes
    epochs: dict[int, list[Epoch]]
    largest_local: int
    batches: list[int] = field(init=False)
    ends: list[float] = field(init=False)
    candidates: list[int] = field(init=False)
    _costs: dict[tuple[tuple[int, ...], int], float] = field(init=False, default_factory=dict)
    _gains: dict[tuple[int, int], float] = field(init=False, default_factory=dict)
    _best: dict[tuple[tuple[int, ...], int], int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.batches = sorted(self.epochs)
        columns = zip(*self.epochs.values(), strict=True)
        self.ends = [min(row.progress for row in column) for column in columns]
        self.candidates = _geometric(self.batches[0], self.batches[-1])

    @classmethod
    def read(cls, folder: Path, largest_local: int | None = None) -> Application:
        """From a folder with `placements.csv`, `scalability.csv` and `validation-B.csv`.
        `largest_local`: where memory allows fewer samples an accelerator than was timed."""
        times = StepTimes.read(folder)
        epochs = {
            int(path.stem.removeprefix("validation-")): _read_epochs(path)
            for path in folder.glob("validation-*.csv")
        }
        return cls(folder.name, times, epochs, largest_local or times.largest_local)

    @property
    def initial_batch(self) -> int:
        """The batch size in whose steps progress is counted."""
        return self.batches[0]

    @property
    def total(self) -> float:
        """Progress at which the job is complete, in steps at the initial batch size."""
        return self.ends[-1]

    def epoch(self, progress: float) -> int:
        """The epoch (from 0) that a job with this progress is in; the last one when complete."""
        return min(bisect_right(self.ends, progress), len(self.ends) - 1)

    def most_replicas(self, batch: int) -> int:
        """Replicas among which a batch may be split: each takes the smallest local batch size."""
        return max(1, batch // self.times.smallest_local)

    def step_seconds(self, placement: Sequence[int], batch: int) -> float:
        """Seconds of one optimiser step. A local batch larger than `largest_local` is accumulated
        in equal parts, of which only the last synchronises."""
        shape = tuple(placement)
        known = self._costs.get((shape, batch))
        if known is None:
            local = math.ceil(batch / sum(shape))
            more = math.ceil(local / self.largest_local) - 1
            step, sync = self.times.seconds(shape, math.ceil(local / (more + 1)))
            known = step + more * (step - sync)
            self._costs[shape, batch] = known
        return known

    def throughput(self, placement: Sequence[int], batch: int) -> float:
        """Samples/s."""
        return batch / self.step_seconds(placement, batch)

    def gain(self, batch: int, epoch: int) -> float:
        """Progress of one step at `batch`, in steps at the initial batch size: 1 there, at most
        batch / initial batch (Pollux, equations 5 to 7, from the gradients' noise)."""
        known = self._gains.get((batch, epoch))
        if known is None:
            sqr, var = self._gradients(batch, epoch)
            known = (var + sqr) / (var * self.initial_batch / batch + sqr)
            self._gains[batch, epoch] = known
        return known

    def efficiency(self, batch: int, epoch: int) -> float:
        """Progress a sample, relative to the initial batch size: from 0 to 1."""
        return self.gain(batch, epoch) * self.initial_batch / batch

    def progress_rate(self, placement: Sequence[int], batch: int, epoch: int) -> float:
        """Progress a second."""
        return self.gain(batch, epoch) / self.step_seconds(placement, batch)

    def best_batch(self, placement: Sequence[int], epoch: int) -> int:
        """The batch size that makes the most progress a second there: `batch_policy: scale`."""
        shape = tuple(placement)
        known = self._best.get((shape, epoch))
        if known is None:
            least = sum(shape) * self.times.smallest_local
            fits = [batch for batch in self.candidates if batch >= least] or self.candidates[-1:]
            known = max(fits, key=lambda batch: self.progress_rate(shape, batch, epoch))
            self._best[shape, epoch] = known
        return known

    def steps(self, batch: int, progress: float = 0.0) -> float:
        """Optimiser steps from `progress` to completion with a fixed batch size."""
        left, done = 0.0, progress
        for epoch in range(self.epoch(progress), len(self.ends)):
            left += max(0.0, self.ends[epoch] - done) / self.gain(batch, epoch)
            done = max(done, self.ends[epoch])
        return left

    def advance(
        self, progress: float, placement: Sequence[int], batch: int, seconds: float
    ) -> float:
        """Progress after `seconds` more at a placement and batch size; at most `total`."""
        while seconds > 0 and progress < self.total:
            epoch = self.epoch(progress)
            rate = self.progress_rate(placement, batch, epoch)
            needed = (self.ends[epoch] - progress) / rate
            if needed > seconds:
                return progress + rate * seconds
            progress, seconds = self.ends[epoch], seconds - needed
        return progress

    def seconds_to(
        self, target: float, progress: float, placement: Sequence[int], batch: int
    ) -> float:
        """Seconds until `target` progress at a placement and batch size."""
        seconds = 0.0
        while progress < min(target, self.total):
            epoch = self.epoch(progress)
            end = min(target, self.ends[epoch])
            seconds += (end - progress) / self.progress_rate(placement, batch, epoch)
            progress = end
        return seconds

    def _gradients(self, batch: int, epoch: int) -> tuple[float, float]:
        """(squared norm, variance) of the gradients, on the line between measured batch sizes;
        outside of them those of the nearest."""
        at = bisect_left(self.batches, batch)
        low = self.batches[max(0, at - 1)] if at < len(self.batches) else self.batches[-1]
        high = self.batches[min(at, len(self.batches) - 1)]
        first, last = self.epochs[low][epoch], self.epochs[high][epoch]
        part = min(1.0, max(0.0, (batch - low) / (high - low))) if high > low else 0.0
        return (
            first.grad_sqr + (last.grad_sqr - first.grad_sqr) * part,
            first.grad_var + (last.grad_var - first.grad_var) * part,
        )


def _geometric(first: int, last: int) -> list[int]:
    """From `first` to `last`, both included, each about `BATCH_RATIO` times the one before."""
    count = max(1, round(math.log(last / first) / math.log(BATCH_RATIO)))
    return sorted({round(first * (last / first) ** (i / count)) for i in range(count + 1)})


def _read_epochs(path: Path) -> list[Epoch]:
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Epoch(float(row["progress"]), float(row["grad_sqr"]), float(row["grad_var"]))
            for row in csv.DictReader(file)
        ]
