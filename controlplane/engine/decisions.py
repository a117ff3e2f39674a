"""What a planning cycle returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.accounting import Accounting
from controlplane.engine.commands import Command
from controlplane.engine.reasons import Reason
from controlplane.engine.snapshot import DemandHistory
from controlplane.engine.types import WorkloadKey


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate (a size, or a job that could give) that was weighed and lost."""

    candidate: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """One job's part of the plan, in replicas. `growth_wanted_since` and `short_since` are what
    the next cycle's History must say: the engine keeps no state of its own. `share`: replicas that
    its queue's objective gives it, where that was reckoned. `expected_gain`: relative gain in
    throughput of the change (or of the next size, if it stays), its pause paid for. `unblock`: the
    smallest set of changes found that would let it go on, for one that waits."""

    workload: WorkloadKey
    current: int
    desired: int
    reason: Reason
    rejected: tuple[Rejection, ...] = ()
    growth_wanted_since: float | None = None
    short_since: float | None = None
    share: int | None = None
    expected_gain: float | None = None
    unblock: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingDemand:
    """Pods that wait. `workload_or_pod` is a workload key as text, or Pod/namespace/name;
    `requests` is what one pod asks for; `since` unix seconds. `rejected`: the jobs that could have
    given places and why each didn't, the first `serving.MOST_REJECTED` of them. `unblock`: the
    smallest set of changes found that would give it its places. `history`: what the next cycle's
    DemandHistory must say of it."""

    workload_or_pod: str
    priority: int
    pods: int
    requests: Mapping[str, int]
    since: float
    reason: Reason
    rejected: tuple[Rejection, ...] = ()
    unblock: tuple[Reason, ...] = ()
    history: DemandHistory = field(default_factory=DemandHistory)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places kept for a demand that has waited long: node -> resource -> accelerators."""

    demand: str
    priority: int
    nodes: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that an operator should know. `subject`: a node, pod or workload, as text."""

    subject: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """`digest`: sha256 of the canonical input. `next_wake`: when a decision that waits for time
    alone becomes due, unix seconds. `reservations`: places that nothing else may take."""

    digest: str
    now: float
    decisions: tuple[Decision, ...]
    commands: tuple[Command, ...]
    pending: tuple[PendingDemand, ...]
    accounting: Accounting
    next_wake: float | None
    reservations: tuple[Reservation, ...] = ()
    notices: tuple[Notice, ...] = ()
