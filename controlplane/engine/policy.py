"""Elasticity policies: how far and how fast a job may breathe. Names follow the published elastic
training APIs (DESIGN.md, Elasticity policy), so that people can carry theirs over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.fields import MOST_REPLICAS
from controlplane.engine.fields import FieldError as FieldError
from controlplane.engine.queues import CohortPolicy, QueuePolicy
from controlplane.engine.schedules import validate_schedule
from controlplane.engine.types import ReclaimPolicy

BATCH_POLICIES = ("preserve", "scale")
LR_RULES = ("none", "linear", "sqrt")
DURATIONS = (
    "graceful_shutdown_timeout",
    "scaling_timeout",
    "fault_scale_down_timeout",
    "scale_up_snooze",
    "cooldown",
)
#: a list of sizes longer than this is a mistake, and would slow every cycle
MOST_SIZES = 4096


@dataclass(frozen=True, slots=True)
class ElasticityPolicy:
    """Sizes in replicas, times in seconds. Valid sizes are `min + k*step` or the explicit list,
    up to `max`. `min_gain`: least relative gain in throughput that a growth must promise.
    `restart_budget`: most resizes within an hour; None for no limit."""

    name: str
    min_replicas: int
    max_replicas: int
    replica_increment_step: int | None = None
    replica_discrete_values: tuple[int, ...] | None = None
    graceful_shutdown_timeout: float = 60.0
    scaling_timeout: float = 60.0
    fault_scale_down_timeout: float = 300.0
    scale_up_snooze: float = 120.0
    cooldown: float = 60.0
    min_gain: float = 0.0
    restart_budget: int | None = None
    batch_policy: str = "preserve"
    lr_rule: str = "none"
    schedule: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Every policy that a plan may refer to, by name. `preemption`: by name of priority class; one
    that isn't named reclaims from elastic jobs."""

    policies: Mapping[str, ElasticityPolicy] = field(default_factory=dict)
    queues: Mapping[str, QueuePolicy] = field(default_factory=dict)
    cohorts: Mapping[str, CohortPolicy] = field(default_factory=dict)
    preemption: Mapping[str, ReclaimPolicy] = field(default_factory=dict)
    cluster: ClusterPolicy = field(default_factory=ClusterPolicy)

    def get(self, name: str | None) -> ElasticityPolicy | None:
        return self.policies.get(name) if name else None

    def reclaim_policy(self, priority_class: str) -> ReclaimPolicy:
        return self.preemption.get(priority_class, ReclaimPolicy.RECLAIM_ELASTIC)


def validate(policy: ElasticityPolicy) -> list[FieldError]:
    """Everything that is wrong with a policy, field by field; empty if it can be used."""
    errors = [*_bounds(policy), *_sizes(policy), *_durations(policy), *_choices(policy)]
    if not errors and policy.min_replicas not in valid_sizes(policy):
        errors.append(
            FieldError(
                "replica_discrete_values",
                list(policy.replica_discrete_values or ()),
                f"must contain min_replicas ({policy.min_replicas}): a job starts there",
            )
        )
    return errors


def valid_sizes(policy: ElasticityPolicy) -> tuple[int, ...]:
    """The replica counts that a job may have, rising; from `min_replicas` to `max_replicas`."""
    low, high = policy.min_replicas, policy.max_replicas
    if policy.replica_discrete_values is not None:
        return tuple(sorted({n for n in policy.replica_discrete_values if low <= n <= high}))
    return tuple(range(low, high + 1, policy.replica_increment_step or 1))


def _bounds(policy: ElasticityPolicy) -> list[FieldError]:
    errors = []
    for name in ("min_replicas", "max_replicas"):
        value = getattr(policy, name)
        if not _whole(value) or not 1 <= value <= MOST_REPLICAS:
            errors.append(
                FieldError(name, value, f"must be a whole number from 1 to {MOST_REPLICAS}")
            )
    if not errors and policy.max_replicas < policy.min_replicas:
        errors.append(
            FieldError(
                "max_replicas",
                policy.max_replicas,
                f"must be at least min_replicas ({policy.min_replicas})",
            )
        )
    budget = policy.restart_budget
    if budget is not None and (not _whole(budget) or budget < 0):
        errors.append(
            FieldError("restart_budget", budget, "must be a whole number, 0 or more, or left out")
        )
    return errors


def _sizes(policy: ElasticityPolicy) -> list[FieldError]:
    step, listed = policy.replica_increment_step, policy.replica_discrete_values
    if step is not None and listed is not None:
        return [FieldError("replica_discrete_values", list(listed), "give a step or a list of "
                           "sizes, not both: leave replica_increment_step out")]  # fmt: skip
    if step is not None and (not _whole(step) or step < 1):
        return [FieldError("replica_increment_step", step, "must be a whole number, 1 or more")]
    if listed is None:
        return []
    wrong = [n for n in listed if not _whole(n) or n < 1]
    if wrong or not listed or len(listed) > MOST_SIZES:
        return [FieldError("replica_discrete_values", list(listed), "must be a list of 1 to "
                           f"{MOST_SIZES} whole numbers, each 1 or more")]  # fmt: skip
    low, high = policy.min_replicas, policy.max_replicas
    outside = [n for n in listed if _whole(low) and _whole(high) and not low <= n <= high]
    if outside:
        return [FieldError("replica_discrete_values", outside, "must lie between min_replicas "
                           f"({low}) and max_replicas ({high})")]  # fmt: skip
    return []


def _durations(policy: ElasticityPolicy) -> list[FieldError]:
    errors = []
    for name in (*DURATIONS, "min_gain"):
        value = getattr(policy, name)
        if not _finite(value) or value < 0:
            unit = "" if name == "min_gain" else " of seconds"
            errors.append(FieldError(name, value, f"must be a finite number{unit}, 0 or more"))
    return errors


def _choices(policy: ElasticityPolicy) -> list[FieldError]:
    errors = []
    for name, allowed in (("batch_policy", BATCH_POLICIES), ("lr_rule", LR_RULES)):
        value = getattr(policy, name)
        if value not in allowed:
            errors.append(FieldError(name, value, f"must be one of {', '.join(allowed)}"))
    if policy.batch_policy == "preserve" and policy.lr_rule in ("linear", "sqrt"):
        errors.append(
            FieldError(
                "lr_rule",
                policy.lr_rule,
                "must be none while batch_policy is preserve: the batch doesn't change",
            )
        )
    errors.extend(validate_schedule(policy))
    return errors


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
