"""One planning cycle: a snapshot, policies and the time in; decisions with reasons out. Pure.

The steps of DESIGN.md, Planning, in their order: each is a function that can be read alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.damping import bind_check_at, flaps
from controlplane.engine.decisions import (
    Decision,
    Notice,
    PendingDemand,
    Plan,
    Rejection,
    Reservation,
)
from controlplane.engine.elasticity import Growth, starts_now
from controlplane.engine.explanations import Explainer
from controlplane.engine.failures import (
    note_shortage,
    shrink_after_fault,
    shrink_before_departure,
)
from controlplane.engine.index import Index
from controlplane.engine.jobs import Job, Rules, load_jobs
from controlplane.engine.lifecycle import release_leaving, to_valid_size
from controlplane.engine.nodes_health import (
    avoided,
    causes_of,
    leaving_first,
    next_change,
    next_overdue,
    overdue,
)
from controlplane.engine.ordering import DemandKind, demands
from controlplane.engine.pending import Served, pending_demand, take_turn
from controlplane.engine.placement import Capacity
from controlplane.engine.policy import PolicySet
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.replicas import Replicas
from controlplane.engine.reservations import could_hold
from controlplane.engine.serving import Service, reserves_at
from controlplane.engine.sharing import Memo
from controlplane.engine.snapshot import ClusterSnapshot, Pod, Workload
from controlplane.engine.steps import Steps
from controlplane.engine.types import WorkloadKey

__all__ = ["Decision", "PendingDemand", "Plan", "Planner", "Rejection", "Reservation", "plan"]

Decisions = dict[WorkloadKey, Decision]

#: an observation older than this is no ground for a decision, seconds
STALE_S = 30.0


def plan(snapshot: ClusterSnapshot, policies: PolicySet, now: float) -> Plan:
    """Decide every managed workload's size. Same input, same output, in whatever order the
    snapshot lists its parts. Without commands when the snapshot is incomplete or stale."""
    return Planner().plan(snapshot, policies, now)


class Planner:
    """Plans the same as `plan`, again and again, and keeps what it reckoned for objects that are
    still the same (by identity): a cycle after few changes costs little."""

    def __init__(self) -> None:
        self._index: Index | None = None
        self._memo = Memo()
        self._explainer = Explainer()
        self._decisions: Decisions = {}

    def plan(self, snapshot: ClusterSnapshot, policies: PolicySet, now: float) -> Plan:
        index = self._index = Index.of(snapshot, self._index)
        cycle = _Cycle(index, snapshot, policies, now, self._memo, self._decisions)
        self._memo.forget_all_but(cycle.jobs)
        return cycle.run(self._explainer)


class _Cycle:
    """The working state of one cycle."""

    def __init__(
        self,
        index: Index,
        snapshot: ClusterSnapshot,
        policies: PolicySet,
        now: float,
        memo: Memo,
        decisions: Decisions,
    ) -> None:
        self._decisions = decisions
        self.index, self.snapshot, self.policies, self.now = index, snapshot, policies, now
        self.memo = memo
        self.rules = Rules(policies, now)
        self.closed = avoided(index.watched, snapshot.node_history, policies.cluster, now)
        self.jobs = load_jobs(
            snapshot, index.workloads, self.rules, self._replicas_of, index.domain_of
        )

    def _replicas_of(self, workload: Workload) -> Replicas:
        return self.index.replicas_of(workload, self._rank)

    def _rank(self, pod: Pod) -> int:
        node = self.index.node_of(pod)
        return leaving_first(pod, causes_of([node] if node else [], self.closed))

    def run(self, explainer: Explainer) -> Plan:
        why_not = _unusable(self.snapshot, self.now)
        if why_not is not None:
            return self._nothing(why_not)
        capacity = self.index.capacity(self.closed)
        busy = [job for job in self.jobs if not job.quiet]
        release_leaving(busy, capacity)
        for job in busy:
            note_shortage(job, self.now)
            to_valid_size(job, capacity)
        due = [shrink_after_fault(job, capacity, self.now) for job in busy]
        if self.closed:
            for job in self.jobs:
                shrink_before_departure(job, self.closed, capacity)
        quota = QuotaLedger.of(self.policies, held_by_queue(self.jobs))
        service = Service(
            self.jobs, capacity, quota, self.policies, self.snapshot.demand_history, self.now
        )
        found = service.serve(demands(self.index.waiting, self.jobs, busy, self.policies))
        steps = Steps(
            capacity,
            quota,
            self.policies,
            self.snapshot.inflow,
            service.reserved,
            self.now,
            self.memo,
        )
        growth = Growth(steps, self.now)
        growth.grow(
            self.jobs, _may_share(found, capacity), [job for job in busy if starts_now(job)]
        )
        due.extend([growth.wake, *self._changes(found)])
        wake = min((at for at in due if at is not None), default=None)
        pending = self._explained(found, explainer, capacity)
        return self._result(pending, service.reserved.made, wake)

    def _explained(
        self, found: list[Served], explainer: Explainer, capacity: Capacity
    ) -> list[PendingDemand]:
        """The demands that wait, with what would unblock each."""
        for served in found:
            take_turn(served)
        answers = explainer.remedies(found, self.jobs, capacity, self.closed)
        pending = []
        for served, unblock in zip(found, answers, strict=True):
            if served.demand.job is not None and served.demand.kind is DemandKind.START:
                served.demand.job.unblock = unblock
            pending.append(pending_demand(served, unblock))
        return pending

    def _changes(self, found: Iterable[Served]) -> list[float | None]:
        """When time alone changes something besides the jobs' own damping."""
        cluster = self.policies.cluster
        return [
            self.rules.next_change(),
            next_change(self.index.watched, self.snapshot.node_history, cluster, self.now),
            next_overdue(self.index.leaving, cluster, self.now),
            *(bind_check_at(served.history, cluster, self.now) for served in found),
            *(self._reserves_at(served) for served in found),
        ]

    def _reserves_at(self, served: Served) -> float | None:
        due = reserves_at(served.demand, self.policies) if served.lacking else None
        return due if due is not None and due > self.now else None

    def _nothing(self, why_not: Reason) -> Plan:
        for job in self.jobs:
            job.reason, job.target = why_not, job.workload.granted
            job.growth_wanted_since = job.history.growth_wanted_since
            job.short_since = job.history.short_since
        return self._result([], [], None)

    # -- what comes of it ----------------------------------------------------------------------

    def _result(
        self,
        pending: list[PendingDemand],
        reservations: list[Reservation],
        wake: float | None,
    ) -> Plan:
        commands = [command for job in self.jobs if (command := _command(job)) is not None]
        before = dict(self._decisions)
        self._decisions.clear()
        for job in self.jobs:
            self._decisions[job.key] = _decision(job, before.get(job.key))
        decisions = sorted(self._decisions.values(), key=lambda d: d.workload.parts)
        return Plan(
            digest=self.index.digest(self.snapshot, self.policies, self.now),
            now=self.now,
            decisions=tuple(decisions),
            commands=tuple(commands),
            pending=tuple(pending),
            accounting=self.index.accounting(self.snapshot, self.closed),
            next_wake=wake,
            reservations=tuple(reservations),
            notices=tuple(self._notices()),
        )

    def _notices(self) -> list[Notice]:
        found = [Notice(f"Node/{name}", reason) for name, reason in sorted(self.closed.items())]
        found.extend(overdue(self.index.leaving, self.policies.cluster, self.now))
        for job in self.jobs:
            if job.policy is None or not job.history.moves:
                continue
            for move, _ in flaps(job.history, job.policy.cooldown):
                reason = because(
                    ReasonCode.FLAPPED,
                    before=move.before, after=move.after, cooldown_s=job.policy.cooldown,
                )  # fmt: skip
                found.append(Notice(job.name, reason))
        return found


def _unusable(snapshot: ClusterSnapshot, now: float) -> Reason | None:
    if not snapshot.complete:
        return because(ReasonCode.SNAPSHOT_INCOMPLETE)
    age = now - snapshot.taken_at
    if age > STALE_S:
        return because(ReasonCode.SNAPSHOT_STALE, age_s=float(age))
    return None


def held_by_queue(jobs: Iterable[Job]) -> dict[str, dict[str, int]]:
    """queue -> resource -> accelerators that its jobs were granted. A suspended job holds nothing,
    whatever size is written on it."""
    held: dict[str, dict[str, int]] = {}
    for job in jobs:
        workload = job.workload
        rests = workload.finished or (workload.suspended and job.in_flight is None)
        if not workload.queue or rests:
            continue
        amounts = held.setdefault(workload.queue, {})
        for resource, n in job.replicas.amounts:
            amounts[resource] = amounts.get(resource, 0) + job.target * n
    return held


def _may_share(found: Iterable[Served], capacity: Capacity) -> list[Job]:
    """Jobs that found no room to start, and may get some of their equals'. One that the cluster
    couldn't hold if it were empty takes part in nothing: its share would lie idle."""
    holds: dict[tuple[object, ...], bool] = {}
    jobs = []
    for served in found:
        demand = served.demand
        if demand.kind is not DemandKind.START or not served.lacking or served.reserved:
            continue
        if served.held_back is not None or demand.job is None or demand.job.fixed is not None:
            continue
        alike = (demand.shape, demand.pods_per_unit, demand.within)
        if alike not in holds:
            holds[alike] = could_hold(demand, capacity) is not None
        if holds[alike]:
            jobs.append(demand.job)
    return jobs


def _decision(job: Job, before: Decision | None) -> Decision:
    """The decision on a job: the last one, if it is the same in all that a job at rest has."""
    reason = job.reason if job.reason is not None and _may_change(job) else job.fixed or job.reason
    if before is not None and before.reason is reason and _at_rest(job, before):
        return before
    return Decision(
        workload=job.workload.key,
        current=job.workload.granted,
        desired=job.target,
        reason=reason or because(ReasonCode.AT_MAXIMUM, to=job.target),
        rejected=tuple(job.rejected) if job.rejected else (),
        growth_wanted_since=None if job.changed else job.growth_wanted_since,
        # a shrink starts the clock of the next fault anew
        short_since=None if job.changed else job.short_since,
        share=job.share,
        expected_gain=job.expected_gain,
        unblock=job.unblock,
    )


def _at_rest(job: Job, before: Decision) -> bool:
    if job.rejected or job.unblock or before.rejected or before.unblock:
        return False
    since = (job.growth_wanted_since, job.short_since, job.expected_gain)
    if since != (None, None, None):
        return False
    if (before.growth_wanted_since, before.short_since, before.expected_gain) != since:
        return False
    now = (job.workload.granted, job.target, job.share)
    return now == (before.current, before.desired, before.share)


def _may_change(job: Job) -> bool:
    """Not fixed; or fixed by a growth under way that a reclaim has turned round."""
    if job.fixed is None:
        return True
    return job.in_flight is not None and job.target < job.in_flight.to_replicas


def _command(job: Job) -> Command | None:
    """The command that carries a job's decision, if it needs one."""
    workload = job.workload
    starts = (
        workload.suspended and job.reason is not None and (job.reason.code is ReasonCode.ADMITTED)
    )
    if not _may_change(job) or job.reason is None or not (job.changed or starts):
        return None
    if workload.suspended and not starts:
        return None
    kind = CommandKind.ADMIT if starts else CommandKind.RESIZE
    gone = job.leaving(job.target) if job.target < workload.granted else ()
    return Command(
        kind=kind if job.target else CommandKind.SUSPEND,
        workload=workload.key,
        from_replicas=workload.granted,
        to_replicas=job.target,
        victims=tuple(pod.name for pod in gone),
        precondition=workload.resource_version,
        reason=job.reason,
        uid=workload.uid,
    )
