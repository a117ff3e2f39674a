"""What a planning cycle returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.engine.accounting import Accounting
from controlplane.engine.commands import Command
from controlplane.engine.reasons import Reason
from controlplane.engine.types import WorkloadKey


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate (a size, or a job that could give) that was weighed and lost."""

    candidate: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """One job's part of the plan, in replicas. `growth_wanted_since` and `short_since` are what
    the next cycle's History must say: the engine keeps no state of its own."""

    workload: WorkloadKey
    current: int
    desired: int
    reason: Reason
    rejected: tuple[Rejection, ...] = ()
    growth_wanted_since: float | None = None
    short_since: float | None = None


@dataclass(frozen=True, slots=True)
class PendingDemand:
    """Pods that wait. `workload_or_pod` is a workload key as text, or Pod/namespace/name;
    `requests` is what one pod asks for; `since` unix seconds. `rejected`: the jobs that could have
    given places and why each didn't, the first `serving.MOST_REJECTED` of them."""

    workload_or_pod: str
    priority: int
    pods: int
    requests: Mapping[str, int]
    since: float
    reason: Reason
    rejected: tuple[Rejection, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """`digest`: sha256 of the canonical input. `next_wake`: when a decision that waits for time
    alone becomes due, unix seconds."""

    digest: str
    now: float
    decisions: tuple[Decision, ...]
    commands: tuple[Command, ...]
    pending: tuple[PendingDemand, ...]
    accounting: Accounting
    next_wake: float | None
