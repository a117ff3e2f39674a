"""Queues and cohorts: who owns how much, who may lend and borrow, and what a queue shares by.

The model is Kueue's (ClusterQueue, Cohort): https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.types import Objective

#: more accelerators than any cluster has: a larger quota is a mistake
MOST_QUOTA = 10_000_000


@dataclass(frozen=True, slots=True)
class Quota:
    """Accelerators of one resource. `nominal` is the queue's own; `borrowing_limit`: most that it
    takes of its cohort beyond that; `lending_limit`: most of its own that it lets others use. None
    stands for no limit. Without a cohort nothing is borrowed or lent."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """`quotas` by resource; one that isn't named is not limited. `weight`: the queue's part where
    several share (Kueue's fairSharing.weight). `reserve_after_s`: a blocked head of this queue that
    has waited so long gets what comes free, however long that takes (a visible reservation); None:
    what can run behind it always goes on. `share_floor`: the part of its fair share (0..1) below
    which a job's equals never take it, whatever the objective."""

    name: str
    cohort: str = ""
    weight: float = 1.0
    objective: Objective = Objective.FAIR_SHARE
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    reserve_after_s: float | None = None
    share_floor: float | None = None


@dataclass(frozen=True, slots=True)
class CohortPolicy:
    """Queues that lend to each other. `quotas`: what the cohort owns beyond its queues."""

    name: str
    quotas: Mapping[str, Quota] = field(default_factory=dict)


def problems_of(queue: QueuePolicy) -> list[tuple[str, object, str]]:
    """(field, value, what is wrong and the remedy) of a queue; empty if it can be used."""
    found: list[tuple[str, object, str]] = []
    if not _number(queue.weight) or queue.weight <= 0:
        found.append(("weight", queue.weight, "must be a finite number above 0"))
    if queue.reserve_after_s is not None and not _number(queue.reserve_after_s):
        found.append(
            ("reserve_after_s", queue.reserve_after_s, "must be seconds, 0 or more, or left out")
        )
    floor = queue.share_floor
    if floor is not None and not (_number(floor) and floor <= 1):
        found.append(("share_floor", floor, "must be a number from 0 to 1, or left out"))
    for resource, quota in queue.quotas.items():
        found.extend(_quota_problems(resource, quota))
    return found


def _quota_problems(resource: str, quota: Quota) -> list[tuple[str, object, str]]:
    found: list[tuple[str, object, str]] = []
    for name in ("nominal", "borrowing_limit", "lending_limit"):
        value = getattr(quota, name)
        if value is None and name != "nominal":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_QUOTA:
            found.append(
                (f"quotas.{resource}.{name}", value, f"must be a whole number, 0 to {MOST_QUOTA}")
            )
    lending = quota.lending_limit
    if not found and lending is not None and lending > quota.nominal:
        found.append(
            (f"quotas.{resource}.lending_limit", lending, f"must not exceed nominal "
             f"({quota.nominal}): a queue lends only what it owns")
        )  # fmt: skip
    return found


def _number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )
