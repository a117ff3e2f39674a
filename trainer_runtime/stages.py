"""Times of a recovery's stages, on the monotonic clock. Standard library only."""

from __future__ import annotations

import time

from trainer_runtime.wire import RecoveryStage, StageTime


class StageClock:
    """Runs from a failure to the first commit after it. Each stage ends where the next begins, so
    that their sum is the downtime; a stage that is gone through twice (another failure in the
    meantime) adds up."""

    def __init__(self, since: float, *, cause: str = "") -> None:
        self.since = since
        self.cause = cause
        self.lost: list[str] = []
        self.rounds = 0
        self._last = since
        self._spent = dict.fromkeys(RecoveryStage, 0.0)

    def end(self, stage: RecoveryStage, at: float | None = None) -> None:
        """The stage ends now (or at `at`)."""
        at = max(self._last, time.monotonic() if at is None else at)
        self._spent[stage] += at - self._last
        self._last = at

    def move(self, source: RecoveryStage, to: RecoveryStage, seconds: float) -> None:
        """Part of what was counted as one stage belongs to another."""
        seconds = min(seconds, self._spent[source])
        self._spent[source] -= seconds
        self._spent[to] += seconds

    @property
    def downtime(self) -> float:
        return sum(self._spent.values())

    def stages(self) -> tuple[StageTime, ...]:
        out, start = [], 0.0
        for stage, spent in self._spent.items():
            out.append(StageTime(stage=stage, start_s=start, duration_s=spent))
            start += spent
        return tuple(out)
