"""Builders for simulations: give what the case is about, the rest is ordinary and exact.

Rates are one unit of progress a second and replica, so times can be reckoned by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.reasons import ReasonCode, because
from controlplane.engine.types import WorkloadKey
from controlplane.simulator.cluster import NAMESPACE, VirtualCluster
from controlplane.simulator.model import PowerLaw
from controlplane.simulator.policies import policy_of
from controlplane.simulator.policies.base import Outcome, SchedulingPolicy
from controlplane.simulator.reports import Told
from controlplane.simulator.run import Simulation
from controlplane.simulator.spec import Costs, Cycle, JobSpec, PodSpec, Scenario
from tests.builders import GPU, make_nodes, make_policy

#: a pause of five seconds and nothing else
COSTS = Costs(resize_pause_s=5.0, eviction_s=60.0)


def make_job(name: str = "a", **fields: Any) -> JobSpec:
    """Two replicas of eight accelerators, 1,000 s of one replica; elastic from 1 to 8."""
    values: dict[str, Any] = {
        "name": name,
        "submit_s": 0.0,
        "work": 1000.0,
        "model": PowerLaw(1.0),
        "requests": {GPU: 8},
        "fixed_replicas": 2,
        "elasticity": make_policy(name="wide", graceful_shutdown_timeout=60.0),
    }
    return JobSpec(**(values | fields))


def make_inference(
    name: str = "i", start_s: float = 0.0, end_s: float = 1e6, gpus: int = 8
) -> PodSpec:
    return PodSpec(name, start_s, end_s, {GPU: gpus})


def make_scenario(*jobs: JobSpec, nodes: int = 4, **fields: Any) -> Scenario:
    """Nodes of eight accelerators; a plan at each event, at once."""
    values: dict[str, Any] = {
        "name": "case",
        "nodes": make_nodes(nodes),
        "jobs": jobs,
        "costs": COSTS,
        "cycle": Cycle(period_s=60.0),
        "horizon_s": 1e7,
    }
    return Scenario(**(values | fields))


def simulate(scenario: Scenario, policy: str | SchedulingPolicy, seed: int = 0) -> Simulation:
    chosen = policy_of(policy) if isinstance(policy, str) else policy
    return Simulation(scenario, chosen, seed).run()


def finished(simulation: Simulation) -> dict[str, float]:
    """When each job ended, in seconds since the start, to the microsecond."""
    start = simulation.scenario.start
    return {
        job.spec.name: round(job.finished_at - start, 5)
        for job in simulation.finished
        if job.finished_at is not None
    }


def started(simulation: Simulation) -> dict[str, float]:
    start = simulation.scenario.start
    jobs = [*simulation.finished, *simulation.cluster.jobs.values()]
    return {
        job.spec.name: round(job.first_started_at - start, 5)
        for job in jobs
        if job.first_started_at is not None
    }


class Scripted:
    """Gives each size at its time: (seconds since the start, job, replicas)."""

    name = "scripted"
    whole = False
    scales_batch = False

    def __init__(self, *moves: tuple[float, str, int]) -> None:
        self._moves = list(moves)
        self._start = 0.0

    def begin(self, scenario: Scenario) -> Scenario:
        self._start = scenario.start
        return scenario

    def told(self, scenario: Scenario) -> Told:
        return Told()

    def decide(self, cluster: VirtualCluster, told: Told, now: float) -> Outcome:
        cluster.snapshot(now, told)
        due = [move for move in self._moves if self._start + move[0] <= now]
        self._moves = self._moves[len(due) :]
        wake = self._start + self._moves[0][0] if self._moves else None
        return Outcome(tuple(self._commands(cluster, due)), wake)

    def _commands(
        self, cluster: VirtualCluster, moves: Iterable[tuple[float, str, int]]
    ) -> Iterable[Command]:
        for _, name, replicas in moves:
            job = cluster.jobs[WorkloadKey("Job", NAMESPACE, name)]
            kind = CommandKind.RESIZE if job.granted else CommandKind.ADMIT
            yield Command(
                kind=kind if replicas else CommandKind.SUSPEND,
                workload=job.key,
                from_replicas=job.granted,
                to_replicas=replicas,
                victims=(),
                precondition="",
                reason=because(ReasonCode.ADMITTED, to=replicas),
            )
