"""What holds for every plan of rich random clusters: 300 in all, each run the same ones;
`HYPOTHESIS_PROFILE=nightly` draws 10,000 others."""

from __future__ import annotations

import dataclasses
import json
import random
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.decisions import Plan
from controlplane.engine.nodes_health import avoided
from controlplane.engine.placement import Capacity, PodShape, shape_of
from controlplane.engine.plan import plan
from controlplane.engine.policy import PolicySet, valid_sizes
from controlplane.engine.reasons import SENTENCES, Reason, ReasonCode
from controlplane.engine.serialize import (
    policies_from_json,
    policies_to_json,
    snapshot_from_json,
    snapshot_to_json,
    to_json,
)
from controlplane.engine.snapshot import ClusterSnapshot, InFlight, Workload
from controlplane.engine.topology import Within
from controlplane.engine.types import Objective, ReclaimPolicy, VictimChoice
from controlplane.engine.validation import still_valid
from tests.builders import GPU, NOW, make_node, make_pod
from tests.random_clusters import (
    CLASSES,
    CYCLE_S,
    Case,
    carried_out,
    cluster_of,
    clusters,
    part,
    within_of,
)

#: time-outs of random policies are over by then
SETTLED = 40
CYCLES = 50


def jobs_of(snapshot: ClusterSnapshot) -> dict[object, Workload]:
    return {w.key: w for w in snapshot.workloads}


def added(job: Workload, command: Command) -> int:
    """Pods that a command adds."""
    before = 0 if command.kind is CommandKind.ADMIT else command.from_replicas
    return max(0, command.to_replicas - before) * job.shape.pods_per_replica


# -- every plan ------------------------------------------------------------------------------


@part(0.15)
@given(clusters())
def test_every_command_keeps_the_rules(case: Case) -> None:
    """One a job; valid sizes or none at all, never between 0 and the minimum; for the object that
    was observed; named victims are pods of the job; still valid once the others of its plan are
    written (a shrink may give up what is missing, a growth takes what another shape could use)."""
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    jobs = jobs_of(snapshot)
    assert [d.workload for d in made.decisions] == sorted(jobs)
    assert len({c.workload for c in made.commands}) == len(made.commands)
    desired = {d.workload: d.desired for d in made.decisions}
    for command in made.commands:
        job = jobs[command.workload]
        suspends = command.kind is CommandKind.SUSPEND
        sizes = valid_sizes(policies.policies[job.policy or ""])
        assert command.to_replicas in ((0,) if suspends else sizes)
        assert command.to_replicas == desired[command.workload]
        assert (command.uid, command.precondition) == (job.uid, job.resource_version)
        assert set(command.victims) <= {p.name for p in snapshot.pods if p.workload == job.key}
        others = [c for c in made.commands if c is not command]
        assert still_valid(command, written(snapshot, others), NOW) is None


def written(snapshot: ClusterSnapshot, commands: Iterable[Command]) -> ClusterSnapshot:
    """The snapshot with some commands written, and nothing else different."""
    sizes = {c.workload: c.to_replicas for c in commands if c.kind is CommandKind.RESIZE}
    workloads = tuple(
        dataclasses.replace(w, granted=sizes.get(w.key, w.granted)) for w in snapshot.workloads
    )
    return dataclasses.replace(snapshot, workloads=workloads)


def reasons_of(made: Plan) -> Iterable[Reason]:
    for decision in made.decisions:
        yield decision.reason
        yield from (r.reason for r in decision.rejected)
        yield from decision.unblock
    for demand in made.pending:
        yield demand.reason
        yield from (r.reason for r in demand.rejected)
        yield from demand.unblock
    yield from (c.reason for c in made.commands)
    yield from (n.reason for n in made.notices)


@part(0.1)
@given(clusters())
def test_everything_said_has_a_sentence_and_its_numbers(case: Case) -> None:
    for reason in reasons_of(plan(*case, NOW)):
        names = {name for _, name, _, _ in string.Formatter().parse(SENTENCES[reason.code]) if name}
        assert names <= set(reason.numbers), reason
        assert reason.sentence == SENTENCES[reason.code].format(**reason.numbers)


@part(0.1)
@given(clusters())
def test_what_is_said_is_so(case: Case) -> None:
    """The sentences that an operator acts on agree with the plan's own numbers."""
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    jobs = jobs_of(snapshot)
    for decision in made.decisions:
        job = jobs[decision.workload]
        policy = policies.get(job.policy)
        match decision.reason.code:
            case ReasonCode.AT_MAXIMUM:
                assert policy is not None
                assert decision.desired >= valid_sizes(policy)[-1]
            case ReasonCode.GROWS | ReasonCode.GROWS_TO_MINIMUM:
                assert decision.desired > decision.current
            case ReasonCode.ADMITTED:
                assert job.suspended
            case code if code.startswith(("shrinks", "preempted", "suspended")):
                assert decision.desired < decision.current
            case code if decision.desired != decision.current:
                assert code is ReasonCode.IN_FLIGHT
    for demand in made.pending:
        if demand.reason.code is ReasonCode.NO_CAPACITY:
            assert demand.reason.numbers["placed"] < demand.pods


@part(0.1)
@given(clusters(), st.integers(0, 2**16))
def test_the_same_input_in_any_order_and_from_json_gives_the_same_plan(
    case: Case, seed: int
) -> None:
    snapshot, policies = case
    shuffle = random.Random(seed)

    def mixed(mapping: Mapping) -> dict:
        return dict(shuffle.sample(list(mapping.items()), len(mapping)))

    other = dataclasses.replace(
        snapshot,
        nodes=tuple(shuffle.sample(snapshot.nodes, len(snapshot.nodes))),
        pods=tuple(shuffle.sample(snapshot.pods, len(snapshot.pods))),
        workloads=tuple(shuffle.sample(snapshot.workloads, len(snapshot.workloads))),
        in_flight=tuple(shuffle.sample(snapshot.in_flight, len(snapshot.in_flight))),
        reports=mixed(snapshot.reports),
        history=mixed(snapshot.history),
    )
    kept = json.loads(json.dumps([snapshot_to_json(other), policies_to_json(policies)]))
    replayed = plan(snapshot_from_json(kept[0]), policies_from_json(kept[1]), NOW)
    assert json.dumps(to_json(replayed)) == json.dumps(to_json(plan(snapshot, policies, NOW)))


# -- capacity --------------------------------------------------------------------------------


@part(0.1)
@given(clusters())
def test_all_that_starts_grows_or_fits_can_be_placed_at_once(case: Case) -> None:
    """By node and device, in the order of service: demand first, then growth in some order."""
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    jobs = {str(w.key): w for w in snapshot.workloads}
    fitting = {d.workload_or_pod: d for d in made.pending if d.reason.code is ReasonCode.FITS}
    served = [_wanted(snapshot, name, d.pods, d.requests) for name, d in fitting.items()]
    grown = [
        _wanted(snapshot, str(c.workload), added(jobs[str(c.workload)], c))
        for c in made.commands
        if str(c.workload) not in fitting
    ]
    closed = avoided(snapshot.nodes, snapshot.node_history, policies.cluster, NOW)
    orders = (grown, grown[::-1], sorted(grown, key=lambda one: one[0].requests, reverse=True))
    assert any(
        _all_placed(Capacity.of(snapshot, closed), [*served, *order], together)
        for order in orders
        for together in (True, False)
    )


Wanted = tuple[PodShape, int, Within | None]


def _wanted(
    snapshot: ClusterSnapshot, name: str, pods: int, requests: Mapping[str, int] | None = None
) -> Wanted:
    """Shape, number and topology domain of pods that get places."""
    job = next((w for w in snapshot.workloads if str(w.key) == name), None)
    if job is not None and job.policy is not None:
        return shape_of(job.shape), pods, within_of(snapshot, job, snapshot.pods)
    waiting = [p for p in snapshot.pods if str(p.workload) == name and p.node is None]
    return shape_of(next(p for p in waiting if p.requests == requests)), pods, None


def _all_placed(room: Capacity, wanted: Iterable[Wanted], together: bool) -> bool:
    """Whether all find places, each job's pods together or one by one."""
    return all(
        (together and room.take_now(shape, pods, within) is not None)
        or all(room.take_now(shape, 1, within) is not None for _ in range(pods))
        for shape, pods, within in wanted
    )


@part(0.1)
@given(clusters())
def test_no_queue_that_takes_has_more_than_its_quota_and_its_cohort_allow(case: Case) -> None:
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    flights = {f.workload: f.to_replicas for f in snapshot.in_flight}
    orders = {c.workload: c.to_replicas for c in made.commands}
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for job in snapshot.workloads:
        if job.finished:
            continue
        each = job.shape.requests.get(GPU, 0) * job.shape.pods_per_replica
        held = flights.get(job.key, 0 if job.suspended else job.granted)
        before[job.queue] += held * each
        after[job.queue] += orders.get(job.key, held) * each
    for name, queue in policies.queues.items():
        quota = queue.quotas.get(GPU)
        if quota is None or after[name] <= before[name]:
            continue
        if not queue.cohort:
            assert after[name] <= quota.nominal
            continue
        if quota.borrowing_limit is not None:
            assert after[name] <= quota.nominal + quota.borrowing_limit
        used = total = 0
        for other in policies.queues.values():
            theirs = other.quotas.get(GPU)
            if theirs is not None and other.cohort == queue.cohort:
                lent = theirs.nominal if theirs.lending_limit is None else theirs.lending_limit
                total += lent
                used += max(0, after[other.name] - (theirs.nominal - lent))
        assert used <= total or after[name] <= quota.nominal - _lent(quota)


def _lent(quota) -> int:
    return quota.nominal if quota.lending_limit is None else quota.lending_limit


# -- who waits, and what it takes from others ------------------------------------------------


def with_one_waiting(case: Case, priority: int, gpus: int, reclaims: ReclaimPolicy) -> Case:
    """Only jobs that run, and one pod that waits. No queue protects its quota (which would be
    another reason to wait), and the highest indexes leave, so that what can be freed is known."""
    snapshot, policies = case
    name = next(name for name, policy in CLASSES.items() if policy is reclaims)
    pods = [p for p in snapshot.pods if p.node and p.workload]
    snapshot = dataclasses.replace(
        snapshot,
        pods=(*pods, make_pod("alone", gpus=gpus, priority=priority, priority_class=name)),
        workloads=tuple(
            dataclasses.replace(w, victims=VictimChoice.HIGHEST_INDEX)
            for w in snapshot.workloads
            if not (w.suspended or w.finished)
        ),
    )
    queues = {
        name: dataclasses.replace(queue, protect_nominal=False)
        for name, queue in policies.queues.items()
    }
    cluster = dataclasses.replace(policies.cluster, max_disruption_ratio=1.0)
    return snapshot, dataclasses.replace(policies, queues=queues, cluster=cluster)


ONE = {
    "priority": st.sampled_from([10, 75, 150, 5000]),
    "gpus": st.sampled_from([1, 4, 8]),
    "reclaims": st.sampled_from(list(ReclaimPolicy)),
}


def _fits_without(snapshot: ClusterSnapshot, gone: set[str]) -> bool:
    """Whether the pod that waits finds a node once some pods have gone."""
    kept = [p for p in snapshot.pods if p.name not in gone]
    alone = shape_of(next(p for p in snapshot.pods if p.name == "alone"))
    return Capacity(snapshot.nodes, kept).take_later(alone) is not None


@part(0.1)
@given(case=clusters(calm=True), **ONE)
def test_demand_waits_if_and_only_if_no_surplus_of_lower_priority_would_do(
    case: Case, priority: int, gpus: int, reclaims: ReclaimPolicy
) -> None:
    """Were every elastic job of lower priority at its minimum (or gone, where the class preempts
    whole jobs), would there be a node? A class that never takes gets only what is free."""
    snapshot, policies = with_one_waiting(case, priority, gpus, reclaims)
    given_up: set[str] = set()
    for job in snapshot.workloads:
        policy = policies.get(job.policy)
        if policy is None or job.priority >= priority or reclaims is ReclaimPolicy.NEVER:
            continue
        least = 0 if reclaims is ReclaimPolicy.PREEMPT_WHOLE else policy.min_replicas
        given_up |= {p.name for p in snapshot.pods if p.workload == job.key
                     and (p.replica_index or 0) >= least}  # fmt: skip
    (demand,) = plan(snapshot, policies, NOW).pending
    waits_for_nothing = demand.reason.code is ReasonCode.NO_CAPACITY
    assert waits_for_nothing == (not _fits_without(snapshot, given_up))


@part(0.1)
@given(case=clusters(calm=True), **ONE)
def test_no_step_of_a_reclaim_could_be_spared(
    case: Case, priority: int, gpus: int, reclaims: ReclaimPolicy
) -> None:
    """Were one donor left at its next larger size, the demand would find no node; and no whole job
    goes while replicas above a minimum would do."""
    snapshot, policies = with_one_waiting(case, priority, gpus, reclaims)
    made = plan(snapshot, policies, NOW)
    taking = (ReasonCode.SHRINKS_FOR_PRIORITY, ReasonCode.PREEMPTED)
    given_up = {c.workload: c for c in made.commands if c.reason.code in taking}
    jobs = jobs_of(snapshot)
    for key, command in given_up.items():
        sizes = valid_sizes(policies.policies[jobs[key].policy or ""])
        more = next(s for s in sizes if s > command.to_replicas)
        spared = _gone(snapshot, {k: c.to_replicas for k, c in given_up.items()} | {key: more})
        assert not _fits_without(snapshot, spared)
        assert jobs[key].priority < priority


def _gone(snapshot: ClusterSnapshot, sizes: Mapping[object, int]) -> set[str]:
    return {
        p.name
        for p in snapshot.pods
        if p.workload in sizes and (p.replica_index or 0) >= sizes[p.workload]
    }


# -- over time -------------------------------------------------------------------------------


@part(0.1)
@given(clusters())
def test_a_cluster_that_nothing_happens_to_comes_to_rest_and_stays_there(case: Case) -> None:
    """Every command is carried out, and after 40 cycles of 10 s nothing is commanded for 50."""
    _comes_to_rest(case.snapshot, case.policies)


def _comes_to_rest(snapshot: ClusterSnapshot, policies: PolicySet) -> None:
    now = NOW
    for cycle in range(SETTLED + CYCLES):
        made = plan(snapshot, policies, now)
        if cycle >= SETTLED:
            assert [(c.workload.name, c.reason.sentence) for c in made.commands] == []
        snapshot = carried_out(snapshot, policies, made)
        now += CYCLE_S


#: clusters in which jobs went up and down for ever: what made them do so is in the comments
FLAPPED = {
    "a taker loses its claim while the giver's pods terminate": (408115531, 2, 3, 3, True),
    "the same, and the giver falls by five": (1040382825, 6, 3, 0, True),
    "the same with a reserve": (4281470618, 3, 5, 1, True),
    "a place that is too little once the reserve is off": (877796481, 11, 4, 1, True),
    "a part of what a gang needs is freed, and taken back": (213273, 4, 5, 1, True),
    "the same with spares": (2216146014, 6, 4, 3, True),
    "a whole job that the disruption ratio never lets go": (2190894, 6, 2, 1, False),
    "suspended for a share that nobody takes": (1074550116, 4, 5, 0, True),
}


@pytest.mark.parametrize("damped", [True, False])
@pytest.mark.parametrize("name", FLAPPED)
def test_what_flapped_once_comes_to_rest(name: str, damped: bool) -> None:
    case = cluster_of(*FLAPPED[name])
    _comes_to_rest(case.snapshot, case.policies if damped else undamped(case.policies))


FOR_SHARE = (ReasonCode.SHRINKS_FOR_SHARE,)


@part(0.1)
@given(clusters(calm=True), st.booleans())
def test_what_a_job_gives_up_for_an_equal_stays_given_up(case: Case, damped: bool) -> None:
    """Nor does a job without damping get what it has to give back; with damping it may, for a
    while: a growth that waits for its time reserves nothing. Of jobs whose replicas are alike and
    whose sizes have no gaps: a large step may free more than the taker uses."""
    alike = only_alike(case.snapshot)
    policies = without_gaps(case.policies if damped else undamped(case.policies))
    for moves in moves_of(alike, policies).values():
        codes = [code for *_, code in moves]
        for at, code in enumerate(codes):
            if code in FOR_SHARE:
                assert all(later in FOR_SHARE for later in codes[at:]), moves
                assert damped or at == 0 or codes[at - 1] in FOR_SHARE, moves


Moves = dict[str, list[tuple[int, int, ReasonCode]]]


def moves_of(snapshot: ClusterSnapshot, policies: PolicySet) -> Moves:
    """Every job's (from, to, reason) within 16 cycles."""
    found: Moves = defaultdict(list)
    now = NOW
    for _ in range(16):
        made = plan(snapshot, policies, now)
        for command in made.commands:
            before = 0 if command.kind is CommandKind.ADMIT else command.from_replicas
            found[str(command.workload)].append((before, command.to_replicas, command.reason.code))
        snapshot = carried_out(snapshot, policies, made)
        now += CYCLE_S
    return found


def undamped(policies: PolicySet) -> PolicySet:
    calm = {
        name: dataclasses.replace(
            policy, scaling_timeout=0.0, cooldown=0.0, scale_up_snooze=0.0, restart_budget=None
        )
        for name, policy in policies.policies.items()
    }
    return dataclasses.replace(policies, policies=calm)


@part(0.05)
@given(clusters(), st.sampled_from(["pending", "applying"]))
def test_a_plan_under_way_is_not_commanded_again(case: Case, state: str) -> None:
    """The record knows the commands, the cluster doesn't show them yet: nothing is added."""
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    flights = [
        InFlight(f"c{i}", c.workload, c.from_replicas, c.to_replicas, NOW, state)
        for i, c in enumerate(made.commands)
    ]
    under_way = dataclasses.replace(snapshot, in_flight=(*snapshot.in_flight, *flights))
    again = plan(under_way, policies, NOW + 1)
    assert {c.workload for c in again.commands} & {f.workload for f in flights} == set()


@part(0.05)
@given(clusters(calm=True))
def test_more_capacity_never_shrinks_a_job(case: Case) -> None:
    """Under fair share, with nothing pending: whoever shrinks with one more node would without.
    Of jobs whose replicas are alike and whose sizes have no gaps: where one can only have 1 or 4,
    a further node may bring the 4 within reach, and what is missing comes from an equal."""
    snapshot, policies = case
    snapshot, policies = only_alike(snapshot), without_gaps(policies)
    roomier = dataclasses.replace(snapshot, nodes=(*snapshot.nodes, make_node("new")))
    without, with_one = (plan(s, policies, NOW).decisions for s in (snapshot, roomier))
    for less, more in zip(without, with_one, strict=True):
        assert more.desired >= min(less.desired, less.current), (less, more)


def only_alike(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Only what runs; jobs whose replicas differ from those of the first are no longer elastic."""
    running = [w for w in snapshot.workloads if not w.suspended]
    amounts = [(w.shape.pods_per_replica, dict(w.shape.requests)) for w in running]
    workloads = tuple(
        job if amount == amounts[0] else dataclasses.replace(job, policy=None)
        for job, amount in zip(running, amounts, strict=True)
    )
    pods = tuple(p for p in snapshot.pods if p.node and p.workload)
    return dataclasses.replace(snapshot, pods=pods, workloads=workloads)


def without_gaps(policies: PolicySet) -> PolicySet:
    """Fair share of sizes min, min + 1 and so on."""
    queues = {
        name: dataclasses.replace(queue, objective=Objective.FAIR_SHARE)
        for name, queue in policies.queues.items()
    }
    elastic = {
        name: dataclasses.replace(policy, replica_discrete_values=None, replica_increment_step=None)
        for name, policy in policies.policies.items()
    }
    return dataclasses.replace(policies, queues=queues, policies=elastic)
