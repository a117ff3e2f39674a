"""How many samples a step takes and how the learning rate follows. Pure but for `applied`.

The batch is preserved unless the job's policy lets it scale with the replicas; only then does the
learning rate follow, by the square root (Adam: Malladi et al., arXiv 2205.10287), linearly (SGD:
Goyal et al., arXiv 1706.02677) or by the script's own rule, ramped over some committed steps.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # options are read before torch is imported
    import torch


class BatchPolicy(StrEnum):
    PRESERVE = "preserve"
    SCALE = "scale"


#: scale of the batch -> factor of the learning rate
LR_RULES: dict[str, Callable[[float], float]] = {
    "none": lambda scale: 1.0,
    "linear": lambda scale: scale,
    "sqrt": math.sqrt,
}


@dataclass(frozen=True, slots=True)
class BatchRule:
    """`global_batch` is that of `base_replicas`; with `scale` a step of n replicas takes
    n / base_replicas times as many samples, at least a micro-batch, in whole micro-batches.
    `lr_rule` is a name of LR_RULES or a function from the batch's scale to the rate's factor;
    `ramp_steps` committed steps bring the rate from one factor to the next."""

    global_batch: int
    micro_batch: int = 1
    policy: BatchPolicy = BatchPolicy.PRESERVE
    base_replicas: int = 1
    lr_rule: str | Callable[[float], float] = "none"
    ramp_steps: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.lr_rule, str) and self.lr_rule not in LR_RULES:
            raise ValueError(
                f"lr_rule: must be one of {', '.join(LR_RULES)} or a function (got "
                f"{self.lr_rule!r})"
            )
        if self.base_replicas < 1:
            raise ValueError(f"base_replicas: must be at least 1 (got {self.base_replicas})")
        if self.ramp_steps < 0:
            raise ValueError(f"ramp_steps: must not be negative (got {self.ramp_steps})")

    def size(self, replicas: int) -> int:
        """Samples in a step of so many replicas."""
        if self.policy is BatchPolicy.PRESERVE:
            return self.global_batch
        units = round(self.global_batch * replicas / self.base_replicas / self.micro_batch)
        return max(1, units) * self.micro_batch

    def factor(self, samples: int) -> float:
        """What the learning rate is multiplied with at a batch of so many samples."""
        if self.policy is BatchPolicy.PRESERVE:
            return 1.0
        rule = LR_RULES[self.lr_rule] if isinstance(self.lr_rule, str) else self.lr_rule
        factor = float(rule(samples / self.global_batch))
        if not math.isfinite(factor) or factor <= 0:
            raise ValueError(f"lr_rule: gave {factor!r} for scale {samples / self.global_batch:g}")
        return factor


@dataclass(slots=True)
class Ramp:
    """Where the learning rate's factor is on its way; part of the replicated state."""

    start: float = 1.0
    target: float = 1.0
    since: int = 0

    def at(self, step: int, steps: int) -> float:
        done = 1.0 if steps <= 0 else min(1.0, (step - self.since) / steps)
        return self.start + (self.target - self.start) * done

    def aim(self, target: float, step: int, steps: int) -> float:
        """The factor of the step after `step` committed ones. A new target begins a new ramp."""
        if target != self.target:
            self.start, self.target, self.since = self.at(step, steps), target, step
        return self.at(step + 1, steps)


@contextlib.contextmanager
def applied(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """The optimizer's learning rates times `factor`, and as the schedule left them afterwards."""
    if factor == 1.0:
        yield
        return
    before: list[Any] = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, before, strict=True):
        group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = rate
