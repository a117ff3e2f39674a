"""Policies that don't resize: each job runs with the size that its owner asked for, or waits."""

from __future__ import annotations

from collections.abc import Callable

from controlplane.engine.commands import Command
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.simulator.cluster import VirtualCluster
from controlplane.simulator.policies.base import Outcome, admit, suspend
from controlplane.simulator.policies.room import Room
from controlplane.simulator.reports import Told
from controlplane.simulator.runtime import SimJob
from controlplane.simulator.spec import Scenario


class FixedSize:
    """What the three have in common."""

    name = ""
    whole = True
    scales_batch = False

    def begin(self, scenario: Scenario) -> Scenario:
        return scenario

    def told(self, scenario: Scenario) -> Told:
        return Told()


class FifoBackfill(FixedSize):
    """In order of arrival; whoever fits runs until it ends (Kueue's BestEffortFIFO: what can run
    behind a blocked head does, and no place is kept for it). Nothing is taken from anybody: demand
    of higher priority waits too. A job that a fault has broken waits anew, in its old place."""

    name = "fifo_backfill"

    def decide(self, cluster: VirtualCluster, told: Told, now: float) -> Outcome:
        if nothing_waits(cluster):
            return Outcome(())
        room = Room(cluster)
        commands: list[Command] = []
        for job in sorted(cluster.jobs.values(), key=lambda job: job.arrival):
            if broken(job) and not room.take_missing(job):
                commands.append(suspend(job, _breaks(job)))
                room.give(job)
        for pod in cluster.pending.values():
            if pod.workload not in cluster.jobs:
                room.take_pod(pod)
        for job in waiting(cluster, key=lambda job: (job.arrival,)):
            if room.take(job, job.spec.fixed_replicas):
                commands.append(admit(job, job.spec.fixed_replicas, _starts(job)))
        return Outcome(commands)


class PreemptWhole(FixedSize):
    """In order of priority, then arrival; whoever doesn't fit preempts whole jobs of lower
    priority, the newest of the lowest first, if that makes it fit (kube-scheduler and Kueue with
    `withinClusterQueue: LowerPriority`)."""

    name = "preempt_whole"

    def decide(self, cluster: VirtualCluster, told: Told, now: float) -> Outcome:
        if nothing_waits(cluster):
            return Outcome(())
        room = Room(cluster)
        leaving: dict[SimJob, Command] = {}
        for job in sorted(cluster.jobs.values(), key=lambda job: job.arrival):
            if broken(job) and not room.take_missing(job):
                leaving[job] = suspend(job, _breaks(job))
                room.give(job)
        commands: list[Command] = []
        pods = [p for p in cluster.pending.values() if p.workload not in cluster.jobs]
        for pod in sorted(pods, key=lambda p: (-p.priority, p.created_at, p.name)):
            demand = (pod.name, pod.priority, pod.requests.get(cluster.resource, 0))
            fits = room.take_pod(pod)
            while not fits and (victim := _victim(cluster, leaving, pod.priority)):
                leaving[victim] = suspend(victim, _preempted(victim, demand, cluster.resource))
                room.give(victim)
                fits = room.take_pod(pod)
        for job in waiting(cluster, key=lambda job: (-job.spec.priority, job.arrival)):
            if room.take(job, job.spec.fixed_replicas) or self._preempt(
                cluster, job, leaving, room
            ):
                commands.append(admit(job, job.spec.fixed_replicas, _starts(job)))
        return Outcome([*leaving.values(), *commands])

    def _preempt(
        self, cluster: VirtualCluster, job: SimJob, leaving: dict[SimJob, Command], room: Room
    ) -> bool:
        """Preempt as few as make the job fit; nobody, if all of them wouldn't."""
        size = job.spec.fixed_replicas
        demand = (job.spec.name, job.spec.priority, size * job.per_replica)
        tried = room.copy()
        victims: dict[SimJob, Command] = {}
        while victim := _victim(cluster, leaving | victims, job.spec.priority):
            victims[victim] = suspend(victim, _preempted(victim, demand, cluster.resource))
            tried.give(victim)
            if tried.take(job, size):
                leaving |= victims
                room.become(tried)
                return True
        return False


class LeastAttained(FixedSize):
    """The published two-queue least-attained-service rule (Tiresias, NSDI 2019, as run for
    "Pollux", OSDI 2021): a job falls to the second queue once it has been served
    `threshold` accelerator-seconds; in order of arrival within a queue; whoever doesn't fit in that
    order yields all that it has."""

    name = "las"

    def __init__(self, threshold: float = 57_600.0) -> None:
        self._threshold = threshold

    def decide(self, cluster: VirtualCluster, told: Told, now: float) -> Outcome:
        left = Room(cluster).all_for_training()
        runs: list[SimJob] = []
        commands: list[Command] = []
        for job in sorted(cluster.jobs.values(), key=self._order):
            needed = job.spec.fixed_replicas * job.per_replica
            if needed <= left:
                left -= needed
                runs.append(job)
            elif not job.suspended:
                commands.append(suspend(job, _yields(job)))
        room = Room(cluster)
        for command in commands:
            room.give(cluster.jobs[command.workload])
        for job in runs:
            size = job.spec.fixed_replicas
            if job.suspended and room.take(job, size):
                commands.append(admit(job, size, _starts(job)))
        return Outcome(commands)

    def _order(self, job: SimJob) -> tuple[bool, int]:
        return (job.attained >= self._threshold, job.arrival)


def nothing_waits(cluster: VirtualCluster) -> bool:
    return not cluster.pending and not any(job.suspended for job in cluster.jobs.values())


def broken(job: SimJob) -> bool:
    """It was granted replicas and some of their pods have no place."""
    return any(pod.node is None and not pod.deleting for pod in job.pods.values())


def waiting(cluster: VirtualCluster, key: Callable[[SimJob], tuple[int, ...]]) -> list[SimJob]:
    return sorted((job for job in cluster.jobs.values() if job.suspended), key=key)


def _victim(cluster: VirtualCluster, leaving: dict[SimJob, Command], below: int) -> SimJob | None:
    """The newest of the lowest priority that still runs."""
    found = [
        job
        for job in cluster.jobs.values()
        if not job.suspended and job.spec.priority < below and job not in leaving
    ]
    return min(found, key=lambda job: (job.spec.priority, -job.arrival), default=None)


def _starts(job: SimJob) -> Reason:
    return because(ReasonCode.ADMITTED, to=job.spec.fixed_replicas)


def _breaks(job: SimJob) -> Reason:
    return because(ReasonCode.WAITS_FOR_MINIMUM, min=job.granted)


def _yields(job: SimJob) -> Reason:
    return because(
        ReasonCode.SUSPENDED_FOR_SHARE,
        from_=job.granted,
        receiver="a job with less attained service",
        objective="least attained service",
    )


def _preempted(job: SimJob, demand: tuple[str, int, int], resource: str) -> Reason:
    name, priority, accelerators = demand
    return because(
        ReasonCode.PREEMPTED,
        from_=job.granted,
        demand=name,
        demand_priority=priority,
        accelerators=accelerators,
        resource=resource,
    )
