"""The simulation: events in virtual time, a plan each cycle, commands carried out at their cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.decisions import Plan
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.snapshot import InFlight, Pod
from controlplane.engine.types import VictimChoice, WorkloadKey
from controlplane.simulator.clock import Agenda
from controlplane.simulator.cluster import NAMESPACE, VirtualCluster
from controlplane.simulator.meter import Meter
from controlplane.simulator.nodes import NodeLife
from controlplane.simulator.policies.base import Outcome, SchedulingPolicy
from controlplane.simulator.runtime import SimJob
from controlplane.simulator.scheduler import Scheduler
from controlplane.simulator.spec import JobSpec, PodSpec, Scenario
from controlplane.simulator.trainers import Trainers

#: a command whose pods haven't come by then is given up and counts as failed, seconds
COMMAND_TIMEOUT_S = 600.0
#: after so many ticks at which nothing runs and nothing is to happen, what waits waits for ever
MOST_IDLE_TICKS = 1000
#: a plan that waits for time alone isn't asked for sooner than this, seconds
LEAST_WAIT_S = 1.0
#: unix times are exact to less than this, seconds
ROUNDING_S = 1e-5
#: resizes that demand of higher priority or a broken node dictates: no flaps
FORCED = frozenset(
    {ReasonCode.SHRINKS_FOR_PRIORITY, ReasonCode.SHRINKS_AFTER_FAULT, ReasonCode.PREEMPTED}
)
Progress = Callable[[float, int, int], None]


class Simulation:
    """One run of a scenario under a policy. All times inside are unix seconds of virtual time."""

    def __init__(self, scenario: Scenario, policy: SchedulingPolicy, seed: int = 0) -> None:
        scenario = policy.begin(scenario)
        self.scenario, self.policy = scenario, policy
        self.costs, self.cycle = scenario.costs, scenario.cycle
        self.told = policy.told(scenario)
        self.cluster = VirtualCluster(scenario)
        self.scheduler = Scheduler(self.cluster, scenario.packing, whole=policy.whole)
        self.agenda = Agenda(scenario.start)
        self.meter = Meter(now=scenario.start)
        self.finished: list[SimJob] = []
        self.cycles = 0
        self.reasons: Counter[str] = Counter()
        self.nodes = NodeLife(self, seed)
        self.trainers = Trainers(self)
        self._expected = len(scenario.jobs)
        self._inelastic: dict[str, tuple[PodSpec, float]] = {}
        self._inelastic_to_come = 0
        self._successor: dict[str, str] = {}
        self._next_tick: float | None = None
        self._plan_at: float | None = None
        self._planned_at = -math.inf
        self._ticked_at = -math.inf
        self._wake: float | None = None
        self._idle_ticks = 0

    @property
    def now(self) -> float:
        return self.agenda.now

    # -- the loop --------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> Simulation:
        """Until it is over, or the horizon."""
        self._fill_agenda()
        end = self.scenario.start + self.scenario.horizon_s
        self._measure()
        while (at := self.agenda.next_at()) is not None and at <= end and not self.over():
            self.meter.advance(at)
            self.agenda.run_all_at(at)
            self._settle()
            if self._plan_at is not None and at >= self._plan_at:
                self._plan_now()
            self._measure()
            if progress is not None:
                progress(at - self.scenario.start, len(self.finished), self._expected)
        if self.scenario.horizon_s < math.inf and not self.over():
            self._close(end)
        return self

    def waiting_inelastic(self) -> list[tuple[Pod, float]]:
        """Inelastic pods without a place, and since when."""
        found = [(self.cluster.pods[uid], since) for uid, (_, since) in self._inelastic.items()]
        return [(pod, since) for pod, since in found if pod.node is None]

    @property
    def stuck(self) -> bool:
        """What waits now can never run."""
        return self._idle_ticks > MOST_IDLE_TICKS

    def over(self) -> bool:
        """Every job has finished; without jobs, every inelastic pod; or nothing moves any more."""
        if self.stuck:
            return True
        if self._expected:
            return len(self.finished) == self._expected
        return self._inelastic_to_come == 0 and not self._inelastic

    def _fill_agenda(self) -> None:
        start = self.scenario.start
        for number, spec in enumerate(sorted(self.scenario.jobs, key=lambda j: j.submit_s)):
            self.agenda.at(start + spec.submit_s, self._arrive, spec, number)
        pods = [pod for pod in self.scenario.pods if pod.end_s > pod.start_s]
        self._inelastic_to_come = len(pods)
        for pod in pods:
            self.agenda.at(start + pod.start_s, self._want, pod)
        self.nodes.fill_agenda()

    def _close(self, end: float) -> None:
        self.agenda.now = max(self.agenda.now, end)
        self.meter.advance(end)
        for job in self.cluster.jobs.values():
            job.advance(end)

    # -- jobs and inelastic pods come and go -----------------------------------------------------

    def _arrive(self, spec: JobSpec, number: int) -> None:
        scaled = self.policy.scales_batch and spec.scaled is not None
        job = SimJob(
            spec=spec,
            key=WorkloadKey("Job", NAMESPACE, spec.name),
            model=spec.scaled if scaled and spec.scaled is not None else spec.model,
            work=spec.scaled_work if scaled and spec.scaled_work is not None else spec.work,
            arrival=number,
            updated_at=self.now,
            paused_until=self.now,
        )
        self.cluster.add_job(job, self.now)
        self.event()

    def _want(self, spec: PodSpec) -> None:
        self._inelastic_to_come -= 1
        pod = self.cluster.add_inelastic(spec, self.now)
        self._inelastic[pod.uid] = (spec, self.now)
        if spec.end_s < math.inf:
            self.agenda.at(self.scenario.start + spec.end_s, self._unwant, pod.uid)
        self.event()

    def replace_pod(self, pod: Pod) -> None:
        """The pod is gone with its node; its workload makes another."""
        self.cluster.remove(pod.uid)
        job = self.cluster.jobs.get(pod.workload) if pod.workload else None
        if job is not None:
            self.cluster.replenish(job, self.now)
        elif pod.uid in self._inelastic:
            spec, _ = self._inelastic.pop(pod.uid)
            new = self.cluster.add_inelastic(spec, self.now)
            self._inelastic[new.uid] = (spec, self.now)
            self._successor[pod.uid] = new.uid

    def _unwant(self, uid: str) -> None:
        """The demand ends: its pod leaves, or stops waiting."""
        while uid in self._successor:
            uid = self._successor.pop(uid)
        _, since = self._inelastic.pop(uid)
        pod = self.cluster.pods[uid]
        if pod.node is None:
            self._waited(pod, since)
            self.cluster.remove(uid)
        else:
            self._let_leave(uid, self.costs.inference_leave_s)
        self.event()

    def _waited(self, pod: Pod, since: float) -> None:
        if pod.requests.get(self.scenario.resource, 0):
            self.meter.waits.append(self.now - since)

    def finish(self, job: SimJob) -> None:
        """The job has done its work: it and its pods are gone."""
        job.finished_at = self.now
        self.finished.append(job)
        self.cluster.remove_job(job)
        self.event()

    # -- planning --------------------------------------------------------------------------------

    def event(self) -> None:
        """Something happened that may call for a plan."""
        if self.cycle.on_events:
            self._plan_by(self.now + self.cycle.delay_s)
        self._schedule_tick()

    def _plan_by(self, at: float) -> None:
        if self._plan_at is None or at < self._plan_at:
            self._plan_at = at
            self.agenda.at(at, self.nothing)

    def nothing(self) -> None:
        """Only moves the clock."""

    def _schedule_tick(self) -> None:
        """The next multiple of the period (now, if that is one and hasn't ticked yet), unless
        there is nothing to plan."""
        if self._next_tick is not None or not self.cluster.jobs:
            return
        period, since = self.cycle.period_s, self.now - self.scenario.start
        nearest = round(since / period)
        if abs(since - period * nearest) < ROUNDING_S and self._ticked_at < self.now:
            at = self.now
        else:
            at = self.scenario.start + period * (math.floor((since + ROUNDING_S) / period) + 1)
        self._next_tick = at
        self.agenda.at(at, self._tick)

    def _tick(self) -> None:
        self._next_tick, self._ticked_at = None, self.now
        running = any(job.placement or job.flight for job in self.cluster.jobs.values())
        self._idle_ticks = 0 if running or self.agenda.next_at() else self._idle_ticks + 1
        if self._at_rest():
            self._schedule_tick()
        else:
            self._plan_by(self.now)

    def _at_rest(self) -> bool:
        """Nothing has changed since the last plan, nothing is due, and it wasn't long ago."""
        due = self._wake is not None and self._wake <= self.now
        recent = self.now - self._planned_at < self.cycle.rest_s
        return recent and not due and not self.cluster.changed

    def _plan_now(self) -> None:
        self._plan_at = None
        for _ in range(1 + self.cycle.follow_ups):
            if not self.cluster.jobs:
                break
            for job in self.cluster.jobs.values():
                job.advance(self.now)
            self.cluster.changed = False
            outcome = self.policy.decide(self.cluster, self.told, self.now)
            self.cycles += 1
            self._planned_at, self._wake = self.now, outcome.next_wake
            if outcome.plan is not None:
                self._remember(outcome.plan)
            for command in outcome.commands:
                self._carry_out(command)
            self._settle()
            if not outcome.commands:
                break
        self._after_plan(outcome if self.cluster.jobs else None)

    def _after_plan(self, outcome: Outcome | None) -> None:
        if outcome is not None and outcome.next_wake is not None and self.cycle.on_events:
            self._plan_by(max(self.now + LEAST_WAIT_S, outcome.next_wake))
        self._schedule_tick()

    def _remember(self, plan: Plan) -> None:
        """The engine keeps no state: what it must know of the past goes into the histories."""
        for decision in plan.decisions:
            job = self.cluster.jobs.get(decision.workload)
            if job is None:
                continue
            old = job.history
            wanted, short = decision.growth_wanted_since, decision.short_since
            if old.growth_wanted_since != wanted or old.short_since != short:
                job.history = replace(old, growth_wanted_since=wanted, short_since=short)
        self.cluster.demand_history = {
            demand.workload_or_pod: demand.history for demand in plan.pending
        }

    # -- commands --------------------------------------------------------------------------------

    def _carry_out(self, command: Command) -> None:
        job = self.cluster.jobs[command.workload]
        before, after = job.granted, command.to_replicas
        if command.kind is CommandKind.SUSPEND:
            after = 0
        self.reasons[str(command.reason.code)] += 1
        leave_s = self._leave_s(job)
        if self.costs.restart or after == 0:
            leaving = [pod.uid for pod in job.pods.values() if not pod.deleting]
        else:
            leaving = self._victims(job, command, after)
        for uid in leaving:
            self._let_leave(uid, leave_s)
        if job.spec.victims is VictimChoice.NAMED and after < before:
            self.cluster.renumber(job)
        cooldown = job.spec.elasticity.cooldown
        forced = command.reason.code in FORCED
        self.cluster.grant(job, after, self.now)
        job.note_resize(self.now, before, after, cooldown, forced=forced)
        job.flight = InFlight(
            command_id=f"{job.spec.name}-{self.cycles}",
            workload=job.key,
            from_replicas=before,
            to_replicas=after,
            issued_at=self.now,
            state="applied",
        )
        self.agenda.at(self.now + leave_s + COMMAND_TIMEOUT_S, self._time_out, job.key, job.flight)

    def _victims(self, job: SimJob, command: Command, after: int) -> list[str]:
        """Pods that leave: those named, or those of the highest indexes."""
        if job.spec.victims is VictimChoice.NAMED and command.victims:
            named = set(command.victims)
            return [pod.uid for pod in job.pods.values() if pod.name in named and not pod.deleting]
        return [
            pod.uid
            for pod in job.pods.values()
            if not pod.deleting and (pod.replica_index or 0) >= after
        ]

    def _leave_s(self, job: SimJob) -> float:
        grace = job.spec.elasticity.graceful_shutdown_timeout
        return grace if self.costs.leave_s is None else min(self.costs.leave_s, grace)

    def _let_leave(self, uid: str, seconds: float) -> None:
        """A bound pod holds its place for so long; one that waits is gone at once."""
        if seconds <= 0 or self.cluster.pods[uid].node is None:
            self.cluster.remove(uid)
            return
        self.cluster.leave(uid, self.now + seconds)
        self.agenda.at(self.now + seconds, self._gone, uid)

    def _gone(self, uid: str) -> None:
        if uid in self.cluster.pods:
            self.cluster.remove(uid)
            self.event()

    def _time_out(self, key: WorkloadKey, flight: InFlight) -> None:
        job = self.cluster.jobs.get(key)
        if job is not None and job.flight is flight:
            job.flight = None
            failed = (*job.history.failed_resizes, self.now)
            job.history = replace(job.history, failed_resizes=failed)
            self.cluster.changed = True
            self.event()

    # -- scheduling, membership ------------------------------------------------------------------

    def _settle(self) -> None:
        """Bind what fits, then let the trainers of changed jobs notice."""
        self.scheduler.bind_pending(self._bind)
        while self.cluster.dirty:
            key = next(iter(self.cluster.dirty))
            del self.cluster.dirty[key]
            self.trainers.notice(self.cluster.jobs[key])

    def _bind(self, pod: Pod, node: str) -> None:
        delay = self.costs.pod_start_s
        self.cluster.bind(pod, node, ready=delay <= 0)
        if pod.uid in self._inelastic:
            self._waited(pod, self._inelastic[pod.uid][1])
        if delay > 0:
            self.agenda.at(self.now + delay, self.pod_ready, pod.uid)

    def pod_ready(self, uid: str) -> None:
        """A bound pod's containers have started, if its node is there."""
        pod = self.cluster.pods.get(uid)
        if pod is None or pod.deleting or pod.node is None:
            return
        if self.cluster.nodes[pod.node].ready:
            self.cluster.set_ready(uid, True)
            self.event()

    # -- levels ----------------------------------------------------------------------------------

    def _measure(self) -> None:
        cluster, resource = self.cluster, self.scenario.resource
        training = sum(job.held for job in cluster.jobs.values())
        productive = sum(
            job.replicas * job.per_replica
            for job in cluster.jobs.values()
            if job.paused_until <= self.now
        )
        held = waiting = 0
        for uid in self._inelastic:
            pod = cluster.pods[uid]
            n = pod.requests.get(resource, 0)
            if pod.node is None:
                waiting += n
            elif cluster.nodes[pod.node].ready:
                held += n
        self.meter.jobs_running = sum(bool(job.placement) for job in cluster.jobs.values())
        self.meter.jobs_waiting = len(cluster.jobs) - self.meter.jobs_running
        self.meter.set(
            self.now,
            capacity=self.nodes.capacity,
            training=training,
            productive=productive,
            inelastic=held,
            waiting=waiting,
            wanted=held + waiting,
        )
        self.meter.mark(self.now)
