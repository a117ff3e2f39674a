"""What a script may want to be told of. Standard library only.

Handlers run in the training thread, between two steps, on every replica. None has to be given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Resize:
    """The job trains with another number of replicas from here on. `step` is the last committed
    one, `pause_s` what a planned change cost this replica (None after a fault), names of those who
    joined, left on request and were lost."""

    before: int
    after: int
    step: int
    cause: str
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    pause_s: float | None = None


@dataclass(slots=True)
class Handlers:
    """`on_scale_up` and `on_scale_down` get a Resize; `on_recovery` the cause, the downtime in
    seconds and the first StepResult after it; `should_checkpoint` gets a StepResult and says
    whether a checkpoint is written after it (rank 0 writes; all ranks are asked)."""

    on_scale_up: Callable[[Resize], None] | None = None
    on_scale_down: Callable[[Resize], None] | None = None
    on_recovery: Callable[[str, float, Any], None] | None = None
    should_checkpoint: Callable[[Any], bool] | None = None
