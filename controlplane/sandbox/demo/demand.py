"""What the demo asks of the cluster over time. Pure: time and seed in, demand out.

Time is unix time, so that a demo that is started again goes on where the day is.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

DAY_SECONDS = 600.0
PEAK, NIGHT = 128, 32  # accelerators of inference at the day's extremes
NOISE = 0.04  # of the day's mean, on top of the curve
SLOT_SECONDS = 4.0  # at most one research job arrives in each
ARRIVAL = 0.35
_SIZES = {1: 4, 2: 4, 4: 3, 8: 1}  # accelerators: weight
_LASTS = (40.0, 120.0)


@dataclass(frozen=True, slots=True)
class ResearchJob:
    """One short job of one pod: `accelerators` for `seconds`."""

    name: str
    accelerators: int
    seconds: float


def inference_accelerators(now: float, *, speed: float = 1.0, seed: int = 0) -> float:
    """Accelerators that the traffic needs at `now`: night, morning rise, noon peak, evening."""
    day, phase = divmod(now * speed / DAY_SECONDS, 1.0)
    smooth = 0.5 - 0.5 * math.cos(2 * math.pi * phase)  # 0 at midnight, 1 at noon
    busy = smooth**0.8  # days are a little longer than nights
    # noise: a few waves whose phases change with each day, so it is smooth as well
    chosen = random.Random(f"{seed}:{int(day)}")
    waves = sum(math.sin(2 * math.pi * (phase * rate + chosen.random())) for rate in (7, 13, 23))
    mean = (PEAK + NIGHT) / 2
    noise = NOISE * mean * waves / 3 * 4 * phase * (1 - phase)  # none at midnight
    return min(max(NIGHT + (PEAK - NIGHT) * busy + noise, NIGHT), PEAK)


def replicas_for(accelerators: float, each: int) -> int:
    """Pods of `each` accelerators that carry the traffic."""
    return math.ceil(accelerators / each - 1e-9)


def research_job(slot: int, *, speed: float = 1.0, seed: int = 0) -> ResearchJob | None:
    """The job that arrives in a slot (`now // SLOT_SECONDS`), if one does."""
    chosen = random.Random(f"{seed}:research:{slot}")
    if chosen.random() >= ARRIVAL:
        return None
    [size] = chosen.choices(list(_SIZES), weights=list(_SIZES.values()))
    seconds = chosen.uniform(*_LASTS) / speed
    return ResearchJob(f"probe-{slot % 1_000_000:06d}", size, round(seconds, 1))
