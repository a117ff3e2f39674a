"""The working record of one elastic job during a cycle."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from controlplane.engine.decisions import Rejection
from controlplane.engine.placement import Capacity, PodShape
from controlplane.engine.policy import ElasticityPolicy, PolicySet, valid_sizes, validate
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.replicas import Replicas
from controlplane.engine.schedules import bounds_at, next_change
from controlplane.engine.snapshot import (
    ClusterSnapshot,
    History,
    InFlight,
    Pod,
    TrainerReport,
    Workload,
)
from controlplane.engine.topology import Within
from controlplane.engine.types import WorkloadKey

_NO_HISTORY = History()


@dataclass(slots=True, eq=False)
class Job:
    """`target`: replicas that this cycle gives it. `fixed`: why its size may not change in this
    cycle. `policy` and `sizes` are empty for a job that can't be planned; `policy` holds the bounds
    of the window of its schedule that `window` names. `share`: what the objective gives it."""

    workload: Workload
    replicas: Replicas
    policy: ElasticityPolicy | None
    sizes: tuple[int, ...]
    history: History
    report: TrainerReport | None
    in_flight: InFlight | None
    target: int
    window: str | None = None
    fixed: Reason | None = None
    reason: Reason | None = None
    rejected: list[Rejection] = field(default_factory=list)
    growth_wanted_since: float | None = None
    short_since: float | None = None
    share: int | None = None
    expected_gain: float | None = None
    unblock: tuple[Reason, ...] = ()
    within: Within | None = None
    name: str = ""

    @property
    def key(self) -> WorkloadKey:
        return self.workload.key

    @property
    def shape(self) -> PodShape:
        return self.replicas.shape

    @property
    def pods(self) -> tuple[Pod, ...]:
        return self.replicas.pods

    @property
    def pods_per_replica(self) -> int:
        return self.replicas.size

    @property
    def accelerators(self) -> tuple[str, int]:
        """The accelerator that a replica asks for, and how many."""
        return self.replicas.accelerators

    @property
    def quiet(self) -> bool:
        """Whether there is nothing about it but that it might grow or give."""
        workload = self.workload
        if self.in_flight is not None or workload.suspended or not self.replicas.whole:
            return False
        return not self.sizes or workload.granted in self.sizes

    def amounts(self, replicas: int) -> dict[str, int]:
        """Accelerators of so many replicas, by resource: what counts against a quota."""
        return {name: n * replicas for name, n in self.replicas.amounts}

    @property
    def changed(self) -> bool:
        return self.target != self.workload.granted

    @property
    def minimum(self) -> int:
        return self.sizes[0] if self.sizes else 0

    def next_size(self) -> int | None:
        """The next valid size above the target."""
        at = bisect_right(self.sizes, self.target)
        return self.sizes[at] if at < len(self.sizes) else None

    def lower_size(self, than: int | None = None) -> int | None:
        """The next valid size below the target (or below another size)."""
        at = bisect_left(self.sizes, self.target if than is None else than)
        return self.sizes[at - 1] if at else None

    def running(self) -> int:
        return self.replicas.running

    def completed(self) -> int:
        return self.replicas.completed

    def shrink_to(self, size: int, capacity: Capacity) -> None:
        """The target falls; the places of the pods that leave are free later."""
        for pod in self.freed_by(self.target, size):
            capacity.release(pod)
        self.target = size

    def freed_by(self, before: int, after: int) -> list[Pod]:
        """Pods that leave when the job goes from one size to a lower one. Those beyond what is
        granted leave anyway, and count already (`lifecycle.release_leaving`)."""
        return self.replicas.between(min(before, self.workload.granted), after)

    def leaving(self, size: int) -> list[Pod]:
        """The pods that go when the job shrinks to `size`, in the order in which they go: an
        Indexed Job gives up its highest indexes (KEP-3715)."""
        return self.replicas.leaving(size)


class Rules:
    """Every elasticity policy as it holds at `now`, worked out once a cycle: the bounds of its
    schedule, its valid sizes, or what is wrong with it."""

    def __init__(self, policies: PolicySet, now: float) -> None:
        self._policies, self._now = policies, now
        self._found: dict[str, Rule] = {}

    def of(self, workload: Workload) -> Rule:
        """The rule for a workload, or why it can't be resized."""
        if workload.finished:
            return Rule(problem=because(ReasonCode.FINISHED))
        if not workload.policy:
            return Rule(problem=because(ReasonCode.NOT_ELASTIC))
        found = self._found.get(workload.policy)
        if found is None:
            found = self._found[workload.policy] = self._rule(workload.policy)
        return found

    def next_change(self) -> float | None:
        """When the bounds of one of the policies that were asked for change next."""
        changes = [
            next_change(rule.policy, self._now)
            for rule in self._found.values()
            if rule.policy is not None and rule.policy.schedule
        ]
        return min((at for at in changes if at is not None), default=None)

    def _rule(self, name: str) -> Rule:
        policy = self._policies.get(name)
        if policy is None:
            return Rule(problem=because(ReasonCode.POLICY_NOT_FOUND, policy=name))
        errors = validate(policy)
        if errors:
            return Rule(
                problem=because(
                    ReasonCode.POLICY_INVALID,
                    policy=policy.name,
                    field=errors[0].field,
                    problem=errors[0].message,
                )
            )
        window, bounded = bounds_at(policy, self._now) if policy.schedule else (None, policy)
        return Rule(bounded, valid_sizes(bounded), window)


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy with the bounds that hold now, its valid sizes and the window of its schedule; or
    the problem with it."""

    policy: ElasticityPolicy | None = None
    sizes: tuple[int, ...] = ()
    window: str | None = None
    problem: Reason | None = None


def load_jobs(
    snapshot: ClusterSnapshot,
    ordered: Iterable[Workload],
    rules: Rules,
    replicas_of: Callable[[Workload], Replicas],
    domain_of: Callable[[Workload, Replicas], str | None] = lambda workload, replicas: None,
) -> list[Job]:
    """Every managed workload as a job; `ordered`: by priority, age and name."""
    flights = {flight.workload: flight for flight in snapshot.in_flight}
    jobs = []
    for workload in ordered:
        replicas = replicas_of(workload)
        job = _job(snapshot, rules.of(workload), workload, replicas, flights.get(workload.key))
        if workload.shape.topology:
            job.within = Within(
                workload.shape.topology,
                workload.shape.topology_required,
                domain_of(workload, replicas),
            )
        jobs.append(job)
    return jobs


def _job(
    snapshot: ClusterSnapshot,
    rule: Rule,
    workload: Workload,
    replicas: Replicas,
    flight: InFlight | None,
) -> Job:
    job = Job(
        workload=workload,
        replicas=replicas,
        policy=rule.policy,
        sizes=rule.sizes,
        history=snapshot.history.get(workload.key, _NO_HISTORY),
        report=snapshot.reports.get(workload.key),
        in_flight=flight,
        target=flight.to_replicas if flight else workload.granted,
        window=rule.window,
        fixed=rule.problem,
        name=str(workload.key),
    )
    if flight and rule.problem is None:
        job.fixed = because(ReasonCode.IN_FLIGHT, from_=flight.from_replicas, to=flight.to_replicas)
    return job
