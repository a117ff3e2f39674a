"""Concertina's engine, with options to take one ingredient away at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from controlplane.engine.decisions import Plan
from controlplane.engine.plan import Planner
from controlplane.engine.policy import ElasticityPolicy, PolicySet
from controlplane.engine.queues import QueuePolicy
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.snapshot import ClusterSnapshot
from controlplane.engine.types import Objective, ReclaimPolicy
from controlplane.simulator.cluster import VirtualCluster
from controlplane.simulator.policies.base import Outcome
from controlplane.simulator.reports import Told
from controlplane.simulator.spec import JobSpec, Scenario

Planning = Callable[[ClusterSnapshot, PolicySet, float], Plan]

#: commands by which jobs of one priority take from each other
REBALANCING = frozenset({ReasonCode.SHRINKS_FOR_SHARE, ReasonCode.SUSPENDED_FOR_SHARE})


@dataclass(frozen=True, slots=True)
class Options:
    """`objective`: of every queue; "": the scenario's. `remaining`: known (trainers report their
    total steps) or unknown. `curves` and `declared`: see `reports.Told`. `batch`: preserve, scale,
    or "" for the policies' own. The rest takes an ingredient away: `growth` off: every job has its
    fixed size; `rebalancing` off: equals don't take from each other; `damping` off: nothing waits
    and a resize counts as free; `placement` off: the scheduler spreads pods; `reclaim` off: nothing
    is taken back for demand of higher priority."""

    objective: str = ""
    remaining: str = "known"
    curves: str = "observed"
    declared: str = "off"
    batch: str = ""
    growth: str = "on"
    rebalancing: str = "on"
    damping: str = "on"
    placement: str = "on"
    reclaim: str = "on"


#: the values that an option may have
CHOICES = {
    "objective": ("", *(str(objective) for objective in Objective)),
    "remaining": ("known", "unknown"),
    "curves": ("observed", "known", "none"),
    "batch": ("", "preserve", "scale"),
    "declared": ("off", "on"),
    **dict.fromkeys(("growth", "rebalancing", "damping", "placement", "reclaim"), ("on", "off")),
}

ABLATIONS = {
    "ours-without-growth": Options(growth="off"),
    "ours-without-rebalancing": Options(rebalancing="off"),
    "ours-without-damping": Options(damping="off"),
    "ours-without-curves": Options(curves="none"),
    "ours-without-remaining": Options(remaining="unknown"),
    "ours-without-placement": Options(placement="off"),
    "ours-without-reclaim": Options(reclaim="off"),
}


class Ours:
    """The engine's plan, carried out as it is."""

    whole = False

    def __init__(self, name: str = "ours", options: Options = Options()) -> None:
        self.name = name
        self.options = options
        self.scales_batch = options.batch == "scale"
        self._policies = PolicySet()
        self._plan: Planning = Planner().plan

    def begin(self, scenario: Scenario) -> Scenario:
        jobs = tuple(self._job(job) for job in scenario.jobs)
        spread = self.options.placement == "off"
        scenario = replace(scenario, jobs=jobs, packing="spread" if spread else scenario.packing)
        self._plan = Planner().plan
        self._policies = self._policy_set(scenario)
        return scenario

    def told(self, scenario: Scenario) -> Told:
        damped = self.options.damping == "on"
        return Told(
            remaining=self.options.remaining == "known",
            curves=self.options.curves,
            declared=self.options.declared == "on",
            cost_s=scenario.costs.resize_pause_s if damped else 0.0,
            node_size=max(
                (n.capacity.get(scenario.resource, 0) for n in scenario.nodes), default=1
            ),
        )

    def decide(self, cluster: VirtualCluster, told: Told, now: float) -> Outcome:
        found = self._plan(cluster.snapshot(now, told), self._policies, now)
        commands = found.commands
        if self.options.rebalancing == "off":
            commands = tuple(c for c in commands if c.reason.code not in REBALANCING)
        return Outcome(commands, found.next_wake, found)

    # -- what the options mean -------------------------------------------------------------------

    def _job(self, job: JobSpec) -> JobSpec:
        policy, options = job.elasticity, self.options
        if options.growth == "off":
            size = job.fixed_replicas
            policy = replace(
                policy,
                name=f"{policy.name}-fixed-{size}",
                min_replicas=size,
                max_replicas=size,
                replica_increment_step=None,
                replica_discrete_values=None,
            )
        if options.damping == "off":
            policy = _undamped(policy)
        if options.batch:
            policy = replace(policy, batch_policy=options.batch)
            if options.batch == "preserve":
                policy = replace(policy, lr_rule="none")
        return replace(job, elasticity=policy)

    def _policy_set(self, scenario: Scenario) -> PolicySet:
        given = scenario.policies
        queues = {job.queue: QueuePolicy(job.queue) for job in scenario.jobs} | dict(given.queues)
        if self.options.objective:
            objective = Objective(self.options.objective)
            queues = {name: replace(q, objective=objective) for name, q in queues.items()}
        preemption = dict(given.preemption)
        if self.options.reclaim == "off":
            classes = {job.priority_class for job in scenario.jobs}
            classes |= {pod.priority_class for pod in scenario.pods}
            preemption = dict.fromkeys(classes, ReclaimPolicy.NEVER)
        return replace(
            given,
            policies={job.elasticity.name: job.elasticity for job in scenario.jobs},
            queues=queues,
            preemption=preemption,
        )


def _undamped(policy: ElasticityPolicy) -> ElasticityPolicy:
    return replace(
        policy,
        name=f"{policy.name}-undamped",
        scaling_timeout=0.0,
        scale_up_snooze=0.0,
        cooldown=0.0,
        min_gain=0.0,
        restart_budget=None,
    )
