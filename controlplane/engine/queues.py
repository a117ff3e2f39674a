"""Queues and cohorts: who owns how much, who may lend and borrow, and what a queue shares by.

The model is Kueue's (ClusterQueue, Cohort): https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.types import Objective

#: (field, value, what is wrong and the remedy)
Problem = tuple[str, object, str]

#: more accelerators than any cluster has: a larger quota is a mistake
MOST_QUOTA = 10_000_000

#: a qualified name as Kubernetes writes extended resources: domain/name
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MOST_NAME = 253


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
    which a job's equals never take it, whatever the objective. `protect_nominal`: what the queue
    holds within its nominal quota isn't reclaimed for a higher priority of other queues."""

    name: str
    cohort: str = ""
    weight: float = 1.0
    objective: Objective = Objective.FAIR_SHARE
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    reserve_after_s: float | None = None
    share_floor: float | None = None
    protect_nominal: bool = False


@dataclass(frozen=True, slots=True)
class CohortPolicy:
    """Queues that lend to each other. `quotas`: what the cohort owns beyond its queues."""

    name: str
    quotas: Mapping[str, Quota] = field(default_factory=dict)


def problems_of(queue: QueuePolicy) -> list[Problem]:
    """What is wrong with a queue, field by field; empty if it can be used."""
    found: list[Problem] = []
    if not _number(queue.weight) or queue.weight <= 0:
        found.append(("weight", queue.weight, "must be a finite number above 0"))
    if queue.reserve_after_s is not None and not _number(queue.reserve_after_s):
        found.append(
            ("reserve_after_s", queue.reserve_after_s, "must be seconds, 0 or more, or left out")
        )
    floor = queue.share_floor
    if floor is not None and not (_number(floor) and floor <= 1):
        found.append(("share_floor", floor, "must be a number from 0 to 1, or left out"))
    return found + _problems_of_quotas(queue.quotas)


def problems_of_cohort(cohort: CohortPolicy) -> list[Problem]:
    """What is wrong with a cohort. It is the root of what it shares: there is nobody to borrow from
    or lend to, so its own quotas have no limits."""
    found = _problems_of_quotas(cohort.quotas)
    for resource, quota in cohort.quotas.items():
        for name in ("borrowing_limit", "lending_limit"):
            if getattr(quota, name) is not None:
                found.append(
                    (f"quotas.{resource}.{name}", getattr(quota, name), "must be left out: only "
                     "queues borrow and lend")
                )  # fmt: skip
    return found


def problems_of_quota(quota: Quota) -> list[Problem]:
    """What is wrong with one quota."""
    found: list[Problem] = []
    for name in ("nominal", "borrowing_limit", "lending_limit"):
        value = getattr(quota, name)
        if value is None and name != "nominal":
            continue
        if not whole_quota(value):
            found.append((name, value, f"must be a whole number, 0 to {MOST_QUOTA}"))
    lending = quota.lending_limit
    if not found and lending is not None and lending > quota.nominal:
        found.append(
            ("lending_limit", lending, f"must not exceed nominal ({quota.nominal}): a queue lends "
             "only what it owns")
        )  # fmt: skip
    return found


def problems_of_resource(resource: object) -> str | None:
    """What is wrong with the name of an accelerator; None if nothing is."""
    if isinstance(resource, str) and len(resource) <= _MOST_NAME and _RESOURCE.fullmatch(resource):
        return None
    return "must be an extended resource such as nvidia.com/gpu"


def whole_quota(value: object) -> bool:
    """Whether a value counts accelerators."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_QUOTA


def _problems_of_quotas(quotas: Mapping[str, Quota]) -> list[Problem]:
    found: list[Problem] = []
    for resource, quota in quotas.items():
        problem = problems_of_resource(resource)
        if problem:
            found.append((f"quotas.{resource}", resource, problem))
        found.extend(
            (f"quotas.{resource}.{name}", value, said)
            for name, value, said in problems_of_quota(quota)
        )
    return found


def _number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )
