"""Where a step's time goes. Standard library only.

    timer = StepTimer()
    timer.begin()
    timer.phase(StepPhase.DATA)             # from here on until the next mark
    timer.phase(StepPhase.FORWARD_BACKWARD)
    timer.phase(StepPhase.REDUCE)
    timer.end()
    times = timer.take()                    # of the steps since the last take

A mark costs one reading of the clock and one addition, well below a microsecond. On an accelerator
a phase ends when its work has been queued: the time of queued work shows in the phase that waits
for it (usually `reduce` or the loss's `item()`).
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

MOST_STEPS = 1024  # of one window; beyond it the oldest are left out


class StepPhase(StrEnum):
    """`reduce` is the gradients' sum with the wait for the others, `exchange` what else moves
    between replicas at a commit, `other` whatever stands before the first mark of a step."""

    DATA = "data"
    FORWARD_BACKWARD = "forward_backward"
    REDUCE = "reduce"
    OPTIMIZER = "optimizer"
    COMMIT = "commit"
    EXCHANGE = "exchange"
    OTHER = "other"


OWN_WORK = (StepPhase.DATA, StepPhase.FORWARD_BACKWARD)  # before anybody is waited for


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds a step, over a window's steps."""

    mean_ms: float
    p50_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A window of committed steps. `phases` has those that took any time."""

    steps: int
    step: Spread
    phases: dict[StepPhase, Spread]

    @property
    def data_wait_ms(self) -> float:
        """Mean milliseconds a step that training waited for its batches."""
        spread = self.phases.get(StepPhase.DATA)
        return spread.mean_ms if spread else 0.0

    @property
    def phases_ms(self) -> dict[str, float]:
        """Means, as `wire.Step` carries them."""
        return {phase.value: spread.mean_ms for phase, spread in self.phases.items()}


class StepTimer:
    """Used by the training thread. `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spent = dict.fromkeys(StepPhase, 0.0)
        self._phase: StepPhase | None = None  # None between two steps
        self._since = 0.0
        self._steps: deque[dict[StepPhase, float]] = deque(maxlen=MOST_STEPS)

    def begin(self) -> None:
        """A step begins. What was measured of a step that never ended is forgotten."""
        self._spent = dict.fromkeys(StepPhase, 0.0)
        self._phase, self._since = StepPhase.OTHER, self._clock()

    def phase(self, phase: StepPhase) -> None:
        """From now on it is this phase; a phase that comes several times in a step adds up.
        Between two steps (a rehearsal) it does nothing."""
        if self._phase is None:
            return
        now = self._clock()
        self._spent[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def end(self) -> None:
        """The step is committed and counts."""
        if self._phase is None:
            return
        self.phase(self._phase)
        self._phase = None
        self._steps.append(self._spent)

    @property
    def own_work_s(self) -> float:
        """Seconds of this step so far in loading and computing, the running phase included: what
        a replica takes by itself, whoever it waits for afterwards."""
        if self._phase is not None:
            self.phase(self._phase)
        return sum(self._spent[phase] for phase in OWN_WORK)

    def take(self) -> StepTimes | None:
        """Times of the steps that ended since the last call; None if there was none."""
        steps = list(self._steps)
        self._steps.clear()
        if not steps:
            return None
        by_phase = {phase: [step[phase] for step in steps] for phase in StepPhase}
        return StepTimes(
            steps=len(steps),
            step=_spread([sum(step.values()) for step in steps]),
            phases={phase: _spread(spent) for phase, spent in by_phase.items() if any(spent)},
        )


def _spread(seconds: list[float]) -> Spread:
    return Spread(
        mean_ms=1000 * statistics.fmean(seconds),
        p50_ms=1000 * statistics.median(seconds),
        max_ms=1000 * max(seconds),
    )
