"""Random clusters for property tests, and what a cluster, its scheduler and the workers do with a
plan until the next cycle.

`HYPOTHESIS_PROFILE=nightly` draws 10,000 clusters in all instead of 300, and others each time.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.decisions import Plan
from controlplane.engine.nodes_health import avoided
from controlplane.engine.placement import Capacity, shape_of
from controlplane.engine.policy import ElasticityPolicy, PolicySet, valid_sizes
from controlplane.engine.queues import CohortPolicy, QueuePolicy, Quota
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.snapshot import (
    ClusterSnapshot,
    DemandHistory,
    Departure,
    History,
    InFlight,
    Move,
    Node,
    NodeHistory,
    Pod,
    ReplicaShape,
    TrainerReport,
    Workload,
)
from controlplane.engine.topology import Within
from controlplane.engine.types import (
    Objective,
    PodPhase,
    ReclaimPolicy,
    Taint,
    Toleration,
    VictimChoice,
)
from tests.builders import (
    GPU,
    NOW,
    make_flight,
    make_key,
    make_node,
    make_pod,
    make_policy,
    make_snapshot,
    make_workload,
)

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
#: clusters in all, over the tests of one file
CLUSTERS = 10_000 if NIGHTLY else 300
AMD = "amd.com/gpu"
RACK = "topology.kubernetes.io/rack"
CYCLE_S = 10.0
CLASSES = {
    "elastic": ReclaimPolicy.RECLAIM_ELASTIC,
    "never": ReclaimPolicy.NEVER,
    "whole": ReclaimPolicy.PREEMPT_WHOLE,
}
TAINT = Taint("pool", "spot", "NoSchedule")
TOLERATES = Toleration("pool", "Equal", "spot", "")


@dataclass(frozen=True, repr=False)
class Case:
    """`snapshot, policies = case`. Shown as the call that makes it again."""

    snapshot: ClusterSnapshot
    policies: PolicySet
    drawn: tuple[int, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.snapshot, self.policies))

    def __repr__(self) -> str:
        return f"cluster_of{self.drawn}"


def part(share: float) -> settings:
    """Settings of a test that draws this part of all clusters: the same ones in every run, but for
    the nightly one."""
    return settings(
        max_examples=max(1, round(CLUSTERS * share)),
        deadline=None,
        derandomize=not NIGHTLY,
        suppress_health_check=list(HealthCheck),
    )


# -- what there is ---------------------------------------------------------------------------


class Dice:
    """Throws of one random cluster."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, *values: Any) -> Any:
        return self._random.choice(values)

    def often(self, first: Any, *others: Any) -> Any:
        """The ordinary value in two of three cases, one of the others else."""
        return first if self._random.random() < 2 / 3 else self._random.choice(others)

    def rarely(self) -> bool:
        return self._random.random() < 0.1

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


@st.composite
def clusters(draw: Callable[[st.SearchStrategy[int]], int], *, calm: bool = False) -> Case:
    """Random clusters. `calm`: nothing is under way, hurt, or about to leave.

    Drawn from a seed, not value by value: that is ten times as fast and spreads evenly. The sizes
    are drawn apart, so that a counterexample shrinks to few nodes and jobs.
    """
    seed = draw(st.integers(0, 2**32 - 1))
    nodes, jobs = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    case = cluster_of(seed, nodes, jobs, draw(st.integers(0, 3)), calm)
    note(repr(case))
    return case


def cluster_of(seed: int, nodes: int, jobs: int, pending: int, calm: bool) -> Case:
    """Jobs that run where they can, others that wait, and policies of every form."""
    dice = Dice(seed)
    found = [_node(dice, i) for i in range(nodes)]
    room = Capacity(found, [])
    workloads, pods, policies, history, reports = [], [], {}, {}, {}
    flights: list[InFlight] = []
    for i in range(jobs):
        policy = _policy(dice, f"policy-{i}")
        policies[policy.name] = policy
        job, replicas = _placed(dice, _job(dice, i, policy), policy, room, calm)
        workloads.append(job)
        pods.extend(replicas)
        report = dice.often(None, *_REPORTS)
        if report is not None:
            reports[job.key] = report
        if not calm:
            history[job.key] = dice.often(History(), *_HISTORIES)
            flights.extend(_flight(dice, job, policy))
    pods.extend(_pending(dice, pending))
    node_history = {}
    if not calm:
        found = [_trouble(dice, node) for node in found]
        bad = {node.name for node in found if not node.ready}
        pods = [dataclasses.replace(p, ready=False) if p.node in bad else p for p in pods]
        node_history = {"n0": NodeHistory((NOW - 9, NOW - 8, NOW - 7))} if dice.rarely() else {}
    snapshot = make_snapshot(
        found, pods, workloads, in_flight=flights, history=history, reports=reports
    )
    snapshot = dataclasses.replace(snapshot, node_history=node_history)
    return Case(snapshot, _policies(dice, policies), (seed, nodes, jobs, pending, calm))


def _node(dice: Dice, i: int) -> Node:
    kind = dice.often("main", "main", "spot", "amd")
    labels = {RACK: f"r{i % 3}"} if dice.often(True, True, False) else {}
    fields: dict[str, Any] = {"pool": kind, "labels": labels}
    if kind == "amd":
        amounts = {AMD: 4, "cpu": 64_000, "memory": 2**40}
        fields |= {"capacity": amounts, "allocatable": amounts}
    if kind == "spot":
        fields["taints"] = (TAINT,)
    return make_node(f"n{i}", dice.often(8, 4), **fields)


def _trouble(dice: Dice, node: Node) -> Node:
    what = dice.often("none", "none", "cordoned", "not-ready", "departs")
    match what:
        case "cordoned":
            return dataclasses.replace(node, unschedulable=True)
        case "not-ready":
            return dataclasses.replace(node, ready=False, not_ready_since=NOW - 60)
        case "departs":
            leaves = Departure("maintenance", dice.pick(NOW + 600, NOW + 9000), "annotation")
            return dataclasses.replace(node, departure=leaves)
    return node


def _policy(dice: Dice, name: str) -> ElasticityPolicy:
    low = dice.often(1, 2, 3)
    high = low + dice.number(1, 6)
    values = dice.often(None, (low, high), (low, low + 1, high))
    return make_policy(
        name,
        min_replicas=low,
        max_replicas=high,
        replica_increment_step=dice.often(None, 2) if values is None else None,
        replica_discrete_values=None if values is None else tuple(sorted(set(values))),
        scaling_timeout=dice.often(0.0, 20.0),
        cooldown=dice.often(0.0, 30.0),
        scale_up_snooze=dice.often(0.0, 20.0),
        fault_scale_down_timeout=dice.pick(30.0, 60.0),
        min_gain=dice.often(0.0, 0.05),
        restart_budget=dice.often(None, 3),
    )


def _job(dice: Dice, i: int, policy: ElasticityPolicy) -> Workload:
    elastic = not dice.rarely()
    return make_workload(
        f"job-{i}",
        policy=policy.name if elastic else None,
        granted=dice.pick(*valid_sizes(policy)),
        suspended=elastic and dice.often(False, False, True),
        finished=dice.rarely() and dice.rarely(),
        priority=dice.often(100, 50, 200),
        priority_class=dice.often(*CLASSES),
        queue=dice.often("", "red", "blue"),
        weight=dice.often(1.0, 2.0),
        created_at=NOW - 1000 * dice.number(1, 3),
        shape=_shape(dice),
        victims=dice.often(VictimChoice.HIGHEST_INDEX, VictimChoice.NAMED),
    )


def _shape(dice: Dice) -> ReplicaShape:
    requests = {AMD: dice.pick(1, 4)} if dice.rarely() else {GPU: dice.pick(1, 2, 4, 8)}
    topology = dice.often("", "preferred", "required")
    return ReplicaShape(
        pods_per_replica=dice.often(1, 2),
        requests={**requests, "cpu": 1000},
        tolerations=(TOLERATES,) if dice.often(False, True) else (),
        topology=RACK if topology else "",
        topology_required=topology == "required",
    )


def _placed(
    dice: Dice, job: Workload, policy: ElasticityPolicy, room: Capacity, calm: bool
) -> tuple[Workload, list[Pod]]:
    """A job at the largest size up to its own that finds room, or else suspended; and its pods.
    Where it isn't calm, it may have a size that isn't valid, and some of its replicas are lost."""
    if job.suspended or job.finished:
        return job, []
    wanted = job.granted if calm or not dice.rarely() else dice.number(1, 4)
    sizes = [wanted, *(s for s in reversed(valid_sizes(policy)) if s < wanted)]
    within = Within(RACK, job.shape.topology_required) if job.shape.topology else None
    for size in sizes:
        job = dataclasses.replace(job, granted=size)
        each = job.shape.pods_per_replica
        places = room.take_now(shape_of(job.shape), size * each, within)
        if places is not None:
            lost = set() if calm or not dice.rarely() else {dice.number(0, size - 1)}
            return job, [
                new_pod(
                    job, index, number, None if index in lost else places[index * each + number]
                )
                for index in range(size)
                for number in range(each)
            ]
    return dataclasses.replace(job, suspended=job.policy is not None), []


def new_pod(job: Workload, index: int, number: int, node: str | None, born: float = 0.0) -> Pod:
    """A pod of a replica, as its controller makes it: bound and ready where a node is given."""
    suffix = f"-{born:.0f}" if born else ""
    return make_pod(
        f"{job.key.name}-{index}-{number}{suffix}",
        node=node,
        workload=job.key,
        replica_index=index,
        priority=job.priority,
        priority_class=job.priority_class,
        requests=dict(job.shape.requests),
        tolerations=job.shape.tolerations,
        node_selector=job.shape.node_selector,
        created_at=born or job.created_at,
    )


def _flight(dice: Dice, job: Workload, policy: ElasticityPolicy) -> list[InFlight]:
    if job.policy is None or job.finished or not dice.rarely():
        return []
    to = policy.min_replicas if job.suspended else dice.pick(0, *valid_sizes(policy))
    if to == job.granted and not job.suspended:
        return []
    return [make_flight(job, to, state=dice.pick("pending", "applying"))]


def _pending(dice: Dice, groups: int) -> list[Pod]:
    found = []
    for i in range(groups):
        key = make_key(f"web-{i}", "Deployment")
        resource = AMD if dice.rarely() else GPU
        fields = {
            "priority": dice.pick(10, 75, 150, 900),
            "priority_class": dice.often(*CLASSES),
            "requests": {resource: dice.pick(1, 4, 8)},
            "tolerations": (TOLERATES,) if dice.often(False, True) else (),
        }
        found.extend(
            make_pod(f"web-{i}-{n}", workload=key, **fields) for n in range(dice.number(1, 2))
        )
    return found


_HISTORIES = (
    History(last_resize_at=NOW - 5, resizes=(NOW - 5,), moves=(Move(NOW - 5, 1, 2),)),
    History(last_restart_at=NOW - 8),
    History(short_since=NOW - 40, growth_wanted_since=NOW - 15),
    History(resizes=(NOW - 50, NOW - 40, NOW - 30), last_resize_at=NOW - 30),
    History(failed_resizes=(NOW - 20,)),
)
_REPORTS = (
    TrainerReport(productive=2, reported_at=NOW, resize_cost_s=5.0),
    TrainerReport(productive=2, reported_at=NOW, committed_steps=100, total_steps=5000),
    TrainerReport(
        productive=2, reported_at=NOW, committed_steps=4000, total_steps=5000, attained=9000.0,
        throughput={1: 100.0, 2: 150.0, 3: 155.0}, deviation={1: 0.01, 2: 0.01, 3: 0.01},
    ),
)  # fmt: skip


def _policies(dice: Dice, policies: dict[str, ElasticityPolicy]) -> PolicySet:
    cohort = dice.often("c", "")
    queues = {
        name: QueuePolicy(
            name,
            cohort=cohort,
            weight=dice.often(1.0, 3.0),
            objective=dice.often(*Objective),
            quotas={GPU: _quota(dice)} if dice.often(False, True) else {},
            reserve_after_s=dice.often(None, 60.0),
            protect_nominal=dice.rarely(),
        )
        for name in ("red", "blue")
    }
    cluster = ClusterPolicy(
        topology_levels=(RACK,),
        spares={GPU: 8} if dice.rarely() else {},
        reserves={GPU: 4} if dice.rarely() else {},
        max_disruption_ratio=dice.often(1.0, 0.5),
    )
    cohorts = {"c": CohortPolicy("c")} if cohort else {}
    return PolicySet(policies, queues, cohorts, CLASSES, cluster)


def _quota(dice: Dice) -> Quota:
    nominal = dice.pick(0, 8, 16, 32)
    return Quota(nominal, dice.often(None, 0, 8), dice.often(None, 0))


# -- what becomes of a plan ------------------------------------------------------------------


def carried_out(snapshot: ClusterSnapshot, policies: PolicySet, made: Plan) -> ClusterSnapshot:
    """The snapshot one cycle later. Commands are written, and what was under way is done. Victims
    are leaving, and have left another cycle later. Controllers have made the pods that are granted,
    and the scheduler has bound what fits into places that were free when it was planned: replicas,
    and of other pods as many as the plan gave places. The record holds what the plan says of the
    past."""
    done = {f.workload: f.to_replicas for f in snapshot.in_flight}
    commands = {c.workload: c for c in made.commands}
    workloads = tuple(_written(w, commands.get(w.key), done) for w in snapshot.workloads)
    gone = {name for c in made.commands for name in c.victims}
    before = [p for p in snapshot.pods if not p.deleting]
    kept = {p.name for w in workloads for p in _kept(w, before) if p.name not in gone}
    keys = {w.key for w in workloads}
    pods = [
        p if p.name in kept or p.workload not in keys else _leaving(p)
        for p in before
        if p.name in kept or p.workload not in keys or p.node is not None
    ]
    after = dataclasses.replace(
        snapshot,
        workloads=workloads,
        pods=_bound(snapshot, policies, workloads, pods, made),
        in_flight=(),
        history=_histories(snapshot, made),
        demand_history=_demand_histories(made),
        taken_at=made.now + CYCLE_S,
    )
    return after


def _written(job: Workload, command: Command | None, done: dict[Any, int]) -> Workload:
    to = command.to_replicas if command else done.get(job.key)
    if to is None or job.finished:
        return job
    if to == 0:  # a suspended job keeps the size that is written in it
        return dataclasses.replace(job, suspended=True)
    if command and command.kind is CommandKind.RESIZE:
        return dataclasses.replace(job, granted=to)
    return dataclasses.replace(job, granted=to, suspended=False)


def _leaving(pod: Pod) -> Pod:
    return dataclasses.replace(pod, deleting=True, ready=False)


def _kept(job: Workload, pods: list[Pod]) -> list[Pod]:
    """The pods of a job that its controller leaves: those of an Indexed Job below its size; of
    another the oldest, bound ones first."""
    mine = [p for p in pods if p.workload == job.key]
    if job.suspended or job.finished or not job.managed:
        return [] if job.suspended else mine
    if job.victims is VictimChoice.HIGHEST_INDEX:
        return [p for p in mine if (p.replica_index or 0) < job.granted]
    order = sorted({p.replica_index for p in mine}, key=lambda i: _age(mine, i))
    kept = set(order[: job.granted])
    return [p for p in mine if p.replica_index in kept]


def _age(pods: list[Pod], index: int | None) -> tuple[bool, float, int]:
    mine = [p for p in pods if p.replica_index == index]
    return (any(p.node is None for p in mine), max(p.created_at for p in mine), index or 0)


def _bound(
    snapshot: ClusterSnapshot,
    policies: PolicySet,
    workloads: tuple[Workload, ...],
    pods: list[Pod],
    made: Plan,
) -> tuple[Pod, ...]:
    """What the scheduler does: by priority; replicas before other pods, first those that have to
    lie in one topology domain, then the oldest."""
    closed = avoided(snapshot.nodes, snapshot.node_history, policies.cluster, made.now)
    given = {
        d.workload_or_pod: d.reason.numbers.get("placed", d.pods)
        for d in made.pending
        if d.reason.code is not ReasonCode.BIND_BACK_OFF
    }
    left = [p for p in snapshot.pods if p.deleting]
    room = Capacity(snapshot.nodes, [*pods, *left], closed=closed)
    jobs = {w.key: w for w in workloads}
    for job in workloads:
        pods.extend(_made(job, pods, made.now))
    waiting = [p for p in pods if p.node is None]
    gangs = {w.key for w in workloads if w.shape.topology_required}
    order = sorted(
        waiting,
        key=lambda p: (
            -p.priority, p.workload not in jobs, p.workload not in gangs, p.created_at, p.name,
        ),
    )  # fmt: skip
    places: dict[str, str] = {}
    for pod in order:
        if pod.name in places:
            continue
        job = jobs.get(pod.workload) if pod.workload else None
        if job is None:
            places_left = int(given.get(str(pod.workload), 0))
            if places_left <= 0:
                continue
            given[str(pod.workload)] = places_left - 1
        gang = [p for p in order if p.workload == pod.workload] if job else [pod]
        places.update(_places(snapshot, job, gang, pods, room))
    return tuple(
        dataclasses.replace(p, node=places[p.name], ready=True, phase=PodPhase.RUNNING)
        if p.name in places
        else p
        for p in pods
    )


def _places(
    snapshot: ClusterSnapshot,
    job: Workload | None,
    gang: list[Pod],
    pods: list[Pod],
    room: Capacity,
) -> dict[str, str]:
    within = within_of(snapshot, job, pods) if job else None
    together = room.take_now(shape_of(gang[0]), len(gang), within)
    if together is not None:
        return dict(zip([p.name for p in gang], together, strict=True))
    found: dict[str, str] = {}
    if within is not None and within.required and within.domain is None:
        return found
    for pod in gang:
        place = room.take_now(shape_of(pod), 1, within)
        if place is not None:
            found[pod.name] = place[0]
    return found


def within_of(snapshot: ClusterSnapshot, job: Workload, pods: Iterable[Pod]) -> Within | None:
    """The topology domain that a job's pods must or should lie in: where most of them are."""
    if not job.shape.topology:
        return None
    racks = {n.name: n.labels[RACK] for n in snapshot.nodes if RACK in n.labels}
    home = sorted(racks[p.node] for p in pods if p.workload == job.key and p.node in racks)
    most = max(home, key=home.count, default=None)
    return Within(job.shape.topology, job.shape.topology_required, most)


def _made(job: Workload, pods: list[Pod], now: float) -> list[Pod]:
    """The pods that a job's controller makes: those of every replica up to its size."""
    if job.suspended or job.finished:
        return []
    mine = [p for p in pods if p.workload == job.key and not p.deleting]
    there = Counter(p.replica_index for p in mine)
    indexes = list(range(job.granted))
    if job.victims is VictimChoice.NAMED:
        free = [i for i in range(job.granted + len(there)) if i not in there]
        indexes = [i for i in there if i is not None] + free[: max(0, job.granted - len(there))]
    return [
        new_pod(job, index, number, None, now)
        for index in indexes
        for number in range(there[index], job.shape.pods_per_replica)
    ]


def _histories(snapshot: ClusterSnapshot, made: Plan) -> dict[Any, History]:
    """As the workers record them: a resize is a move, and the planner's own times are kept."""
    found = {}
    commands = {c.workload: c for c in made.commands}
    for decision in made.decisions:
        before = snapshot.history.get(decision.workload, History())
        after = dataclasses.replace(
            before,
            growth_wanted_since=decision.growth_wanted_since,
            short_since=decision.short_since,
        )
        command = commands.get(decision.workload)
        if command is not None and command.from_replicas != command.to_replicas:
            move = Move(made.now, command.from_replicas, command.to_replicas)
            after = dataclasses.replace(
                after,
                last_resize_at=made.now,
                resizes=(*(at for at in before.resizes if made.now - at < 3600), made.now),
                moves=(*before.moves, move),
                failed_resizes=(),
            )
        found[decision.workload] = after
    return found


def _demand_histories(made: Plan) -> dict[str, DemandHistory]:
    return {p.workload_or_pod: p.history for p in made.pending if p.history != DemandHistory()}
