"""What every compared policy is: it sees the virtual cluster and answers with commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.decisions import Plan
from controlplane.engine.reasons import Reason
from controlplane.simulator.cluster import VirtualCluster
from controlplane.simulator.reports import Told
from controlplane.simulator.runtime import SimJob
from controlplane.simulator.spec import Scenario


@dataclass(frozen=True, slots=True)
class Outcome:
    """`next_wake`: when a decision that waits for time alone becomes due, unix seconds. `plan`:
    the engine's, where that decided."""

    commands: Sequence[Command]
    next_wake: float | None = None
    plan: Plan | None = None


class SchedulingPolicy(Protocol):
    """`whole`: a job runs with all of its replicas or not at all (fixed sizes). `scales_batch`:
    batch and learning rate follow the size. `packing`: see `spec.Scenario`."""

    name: str
    whole: bool
    scales_batch: bool

    def begin(self, scenario: Scenario) -> Scenario:
        """Take note of the scenario; the one to simulate (with this policy's sizes)."""
        ...

    def told(self, scenario: Scenario) -> Told:
        """What trainers report to it."""
        ...

    def decide(self, cluster: VirtualCluster, told: Told, now: float) -> Outcome:
        """Commands for the cluster as it is; called again after they were carried out."""
        ...


def admit(job: SimJob, replicas: int, reason: Reason) -> Command:
    return _command(CommandKind.ADMIT, job, replicas, reason)


def suspend(job: SimJob, reason: Reason) -> Command:
    return _command(CommandKind.SUSPEND, job, 0, reason)


def _command(kind: CommandKind, job: SimJob, replicas: int, reason: Reason) -> Command:
    return Command(
        kind=kind,
        workload=job.key,
        from_replicas=job.granted,
        to_replicas=replicas,
        victims=(),
        precondition="",
        reason=reason,
    )
