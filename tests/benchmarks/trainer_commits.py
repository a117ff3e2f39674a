"""What the log of commits says about a fault or a change of size. Pure; all times in seconds.

The same reading for every runtime, from outside of it: a line for each step that a process
committed, on the clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Commit:
    """`pid` committed `step` as one of `world` replicas, in this `epoch` of the group."""

    at: float
    pid: int
    step: int
    world: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Kill:
    """What a SIGKILL cost. `whole_s`: until a step was committed by the full number again, none of
    them the victim; `next_s`: until the survivors committed their first step without the victim
    (None: nobody survived); `lost_s`: the part of the time between the commits around the fault
    in which the job didn't train, had each committed step taken its usual time."""

    whole_s: float
    next_s: float | None
    lost_s: float


def read(path: Path) -> list[Commit]:
    """Whole lines only: the last may be under way."""
    if not path.exists():
        return []
    return [Commit(**json.loads(line)) for line in path.read_text().split("\n")[:-1]]


def whole_since(commits: Iterable[Commit], at: float, world: int, without: int = 0) -> float | None:
    """When the first step after `at` had been committed by `world` processes other than
    `without`, as a group of that size; None if none has."""
    found: dict[tuple[int, int], dict[int, float]] = {}
    for each in commits:
        if each.at > at and each.world == world and each.pid != without:
            found.setdefault((each.epoch, each.step), {})[each.pid] = each.at
    ready = [max(times.values()) for times in found.values() if len(times) >= world]
    return min(ready, default=None)


def step_s(commits: list[Commit], world: int) -> float | None:
    """The median time between two commits of a process in a group of `world` that stayed."""
    gaps = []
    for pid in {each.pid for each in commits}:
        mine = [each for each in commits if each.pid == pid]
        gaps += [
            after.at - before.at
            for before, after in pairwise(mine)
            if before.epoch == after.epoch and before.world == after.world == world
        ]
    return statistics.median(gaps) if gaps else None


def kill(commits: list[Commit], at: float, victim: int, world: int) -> Kill:
    """`commits` of the whole run; the kill was `at`. Raises ValueError when the log doesn't reach
    from the group before to a whole one after."""
    whole = whole_since(commits, at, world, victim)
    usual = step_s([each for each in commits if each.at < at], world)
    before = [each for each in commits if each.at <= at and each.world == world]
    if whole is None or usual is None or not before:
        raise ValueError(f"commits: no step of {world} replicas around the kill at {at:.3f}")
    last = max(before, key=lambda each: each.at)
    survivors = {each.pid for each in before if each.epoch == last.epoch} - {victim}
    progress = max(each.step for each in commits if each.at <= whole) - last.step
    return Kill(
        whole_s=whole - at,
        next_s=_next(commits, at, last.epoch, survivors),
        lost_s=whole - last.at - usual * progress,
    )


def _next(commits: list[Commit], at: float, epoch: int, survivors: set[int]) -> float | None:
    first: dict[int, float] = {}
    for each in commits:
        if each.pid in survivors and each.epoch != epoch and each.at > at:
            first.setdefault(each.pid, each.at)
    return max(first.values()) - at if first and first.keys() == survivors else None


def pauses(commits: list[Commit], *, before: int, after: int) -> list[float]:
    """For each change from `before` to `after` replicas: how much longer than an ordinary step of
    theirs those that stayed waited for their first commit in the new group; the worst of them."""
    usual = step_s(commits, before)
    found: dict[int, float] = {}
    for pid in {each.pid for each in commits}:
        mine = [each for each in commits if each.pid == pid]
        for old, new in pairwise(mine):
            if (old.world, new.world) == (before, after) and usual is not None:
                found[new.epoch] = max(found.get(new.epoch, 0.0), new.at - old.at - usual)
    return [found[epoch] for epoch in sorted(found)]
