"""What holds for every plan, whatever the cluster."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.engine.commands import CommandKind
from controlplane.engine.decisions import PendingDemand
from controlplane.engine.placement import Capacity, PodShape, shape_of
from controlplane.engine.plan import plan
from controlplane.engine.policy import PolicySet, valid_sizes, validate
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.serialize import (
    policies_from_json,
    policies_to_json,
    snapshot_from_json,
    snapshot_to_json,
    to_json,
)
from controlplane.engine.snapshot import ClusterSnapshot, InFlight, Workload
from controlplane.engine.types import WorkloadKey
from controlplane.engine.validation import still_valid
from tests.builders import (
    NOW,
    make_nodes,
    make_pod,
    make_policies,
    make_policy,
    make_replicas,
    make_shape,
    make_snapshot,
    make_workload,
)


@st.composite
def clusters(draw) -> tuple[ClusterSnapshot, PolicySet]:
    """Jobs that really run where they are, pods that wait, policies of every form."""
    nodes = make_nodes(draw(st.integers(1, 6)))
    policies, jobs, pods = [], [], []
    room = Capacity(nodes, [])
    for i in range(draw(st.integers(0, 3))):
        low = draw(st.integers(1, 3))
        policy = make_policy(
            f"policy-{i}",
            min_replicas=low,
            max_replicas=low + draw(st.integers(0, 5)),
            replica_increment_step=draw(st.sampled_from([None, 1, 2])),
        )
        shape = make_shape(draw(st.sampled_from([1, 2, 4, 8])))
        wanted = draw(st.integers(0, 6))
        job = make_workload(
            f"job-{i}",
            policy=policy.name,
            priority=draw(st.sampled_from([50, 100, 200])),
            shape=shape,
            granted=wanted,
            suspended=wanted == 0,
        )
        places = []
        for _ in range(wanted):
            taken = room.take_now(shape_of(shape))
            places.append(taken[0] if taken else None)
        policies.append(policy)
        jobs.append(job)
        pods.extend(make_replicas(job, places))
    for i in range(draw(st.integers(0, 6))):
        gpus = draw(st.sampled_from([1, 4, 8]))
        pods.append(make_pod(f"w{i}", gpus=gpus, priority=draw(st.sampled_from([10, 150, 900]))))
    return make_snapshot(nodes, pods, jobs), make_policies(*policies)


def apply(snapshot: ClusterSnapshot, made) -> ClusterSnapshot:
    """The snapshot once the cluster has done what was commanded, and bound what waits."""
    sizes = {c.workload: c.to_replicas for c in made.commands}
    gone = {name for c in made.commands for name in c.victims}
    workloads = tuple(
        dataclasses.replace(w, granted=sizes[w.key], suspended=False) if w.key in sizes else w
        for w in snapshot.workloads
    )
    pods = [p for p in snapshot.pods if p.name not in gone]
    room = Capacity(snapshot.nodes, pods)
    bound = []
    for pod in sorted(pods, key=lambda p: (-p.priority, p.created_at, p.name)):
        place = None if pod.node else room.take_now(shape_of(pod))
        bound.append(dataclasses.replace(pod, node=place[0], ready=True) if place else pod)
    for workload in workloads:
        have = {p.replica_index for p in bound if p.workload == workload.key}
        for index in range(workload.granted if not workload.suspended else 0):
            if index not in have:
                place = room.take_now(shape_of(workload.shape))
                replica = make_replicas(workload, [None] * index + [place[0] if place else None])
                bound.append(replica[-1])
    return dataclasses.replace(snapshot, pods=tuple(bound), workloads=workloads)


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_every_command_keeps_the_rules(case):
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    jobs = {w.key: w for w in snapshot.workloads}
    assert {d.workload for d in made.decisions} == set(jobs)
    assert len({c.workload for c in made.commands}) == len(made.commands)
    for command in made.commands:
        job = jobs[command.workload]
        policy = policies.policies[job.policy]
        assert command.to_replicas in valid_sizes(policy)
        assert command.to_replicas != command.from_replicas or command.kind is CommandKind.ADMIT
        assert command.reason.sentence
        assert still_valid(command, snapshot, NOW) is None


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_growth_and_starts_can_all_be_placed_at_once(case):
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    jobs = {w.key: w for w in snapshot.workloads}
    room = Capacity.of(snapshot)
    for command in made.commands:
        job = jobs[command.workload]
        before = 0 if command.kind is CommandKind.ADMIT else command.from_replicas
        for _ in range(command.to_replicas - before):
            assert room.take_now(shape_of(job.shape)) is not None


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_a_plan_that_was_carried_out_leads_to_rest(case):
    """Within as many cycles as there are jobs and waiting pods nothing is commanded any more, and
    no job goes up and down on the way (except a start that then grows)."""
    snapshot, policies = case
    moves: dict[object, list[int]] = {}
    for _ in range(12):
        made = plan(snapshot, policies, NOW)
        if not made.commands:
            break
        for command in made.commands:
            moves.setdefault(command.workload, []).append(command.to_replicas)
        snapshot = apply(snapshot, made)
    assert not made.commands, moves


@settings(max_examples=100, deadline=None)
@given(clusters(), st.integers(0, 2**16))
def test_the_same_input_in_any_order_gives_the_same_plan_byte_for_byte(case, seed):
    snapshot, policies = case
    shuffle = random.Random(seed)
    mixed = dataclasses.replace(
        snapshot,
        nodes=tuple(shuffle.sample(snapshot.nodes, len(snapshot.nodes))),
        pods=tuple(shuffle.sample(snapshot.pods, len(snapshot.pods))),
        workloads=tuple(shuffle.sample(snapshot.workloads, len(snapshot.workloads))),
    )
    kept = json.loads(json.dumps([snapshot_to_json(mixed), policies_to_json(policies)]))
    replayed = plan(snapshot_from_json(kept[0]), policies_from_json(kept[1]), NOW)
    assert json.dumps(to_json(plan(snapshot, policies, NOW))) == json.dumps(to_json(replayed))


@settings(max_examples=150, deadline=None)
@given(clusters(), st.sampled_from(["pending", "applying", "applied"]))
def test_a_plan_under_way_is_not_commanded_again(case, state):
    """The record knows the commands, the cluster doesn't show them yet: nothing is added."""
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    flights = [
        InFlight(f"c{i}", c.workload, c.from_replicas, c.to_replicas, NOW, state)
        for i, c in enumerate(made.commands)
    ]
    again = plan(dataclasses.replace(snapshot, in_flight=tuple(flights)), policies, NOW + 1)
    assert again.commands == ()


def with_one_waiting(snapshot: ClusterSnapshot, priority: int) -> ClusterSnapshot:
    """Only what runs, and one pod of 8 that waits."""
    bound = [pod for pod in snapshot.pods if pod.workload and pod.node]
    running = Counter(pod.workload for pod in bound)
    return dataclasses.replace(
        snapshot,
        pods=(*bound, make_pod("alone", gpus=8, priority=priority)),
        workloads=tuple(
            dataclasses.replace(w, granted=running[w.key])
            for w in snapshot.workloads
            if running[w.key]
        ),
    )


@settings(max_examples=150, deadline=None)
@given(clusters(), st.sampled_from([10, 75, 150, 5000]))
def test_demand_waits_only_if_no_lower_surplus_would_satisfy_it(case, priority):
    """Exactly then, for a pod that waits alone: were every elastic job of lower priority at its
    minimum, would there be a node for it?"""
    full, policies = case
    snapshot = with_one_waiting(full, priority)
    minimums = {w.key: policies.policies[w.policy].min_replicas for w in snapshot.workloads}
    lower = {w.key for w in snapshot.workloads if w.priority < priority}
    low_minimum = [
        p
        for p in snapshot.pods
        if p.node and not (p.workload in lower and p.replica_index >= minimums[p.workload])
    ]
    could = Capacity(snapshot.nodes, low_minimum).take_later(shape_of(make_pod())) is not None
    made = plan(snapshot, policies, NOW)
    (demand,) = [p for p in made.pending if p.workload_or_pod == "Pod/ml/alone"]
    if could:
        # a job of higher priority that still needs its minimum may have taken the place
        before = [p for p in made.pending if p.priority >= priority and p is not demand]
        assert demand.reason.code is not ReasonCode.NO_CAPACITY or before
    elif demand.reason.code is not ReasonCode.NO_CAPACITY:
        # what falls to a valid size of its policy frees places too
        assert any(d.reason.code is ReasonCode.SHRINKS_TO_POLICY for d in made.decisions)


def _shape_of(demand: PendingDemand) -> PodShape:
    return shape_of(make_pod(requests=dict(demand.requests)))


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_no_step_of_a_reclaim_could_be_spared(case):
    """With a single waiting pod, giving back one step less to any donor leaves it without room."""
    snapshot, policies = case
    snapshot = with_one_waiting(snapshot, 5000)
    pod = snapshot.pods[-1]
    made = plan(snapshot, policies, NOW)
    given_back = {
        c.workload: c for c in made.commands if c.reason.code is ReasonCode.SHRINKS_FOR_PRIORITY
    }
    if any(c.reason.numbers["demand"] != "Pod/ml/alone" for c in given_back.values()):
        return  # a job that lacks its minimum reclaims too
    for spared in given_back.values():
        sizes = valid_sizes(policies.policies[_job(snapshot, spared.workload).policy])
        more = next(s for s in sizes if s > spared.to_replicas)
        if more > spared.from_replicas:
            continue  # it began above its largest valid size
        after = {key: c.to_replicas for key, c in given_back.items()} | {spared.workload: more}
        kept = [
            p
            for p in snapshot.pods
            if p.node
            and (p.replica_index or 0) < after.get(p.workload, _job(snapshot, p.workload).granted)
        ]
        assert Capacity(snapshot.nodes, kept).take_later(shape_of(pod)) is None


def _job(snapshot: ClusterSnapshot, key: WorkloadKey) -> Workload:
    return next(w for w in snapshot.workloads if w.key == key)


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_growth_takes_no_place_that_waiting_demand_could_use(case):
    """Pods of any priority that fit into free places still do once all growth is there."""
    snapshot, policies = case
    made = plan(snapshot, policies, NOW)
    room = Capacity.of(snapshot)
    for command in made.commands:
        if command.reason.code is ReasonCode.GROWS:
            shape = shape_of(_job(snapshot, command.workload).shape)
            assert room.take_now(shape, command.to_replicas - command.from_replicas) is not None
    for demand in made.pending:
        if demand.reason.code is ReasonCode.FITS:
            assert room.take_now(_shape_of(demand), demand.pods) is not None


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_reclaim_never_takes_a_running_job_below_its_minimum(case):
    snapshot, policies = case
    for command in plan(snapshot, policies, NOW).commands:
        job = next(w for w in snapshot.workloads if w.key == command.workload)
        if command.to_replicas < command.from_replicas:
            assert command.to_replicas >= policies.policies[job.policy].min_replicas
            assert len(command.victims) == command.from_replicas - command.to_replicas


@given(
    st.integers(-1, 5), st.integers(-1, 5),
    st.one_of(st.none(), st.integers(-1, 3)),
    st.one_of(st.none(), st.lists(st.integers(-1, 6), max_size=3).map(tuple)),
)  # fmt: skip
def test_a_policy_that_validates_has_sizes_from_its_minimum_to_its_maximum(low, high, step, listed):
    policy = make_policy(
        min_replicas=low, max_replicas=high,
        replica_increment_step=step, replica_discrete_values=listed,
    )  # fmt: skip
    if not validate(policy):
        sizes = valid_sizes(policy)
        assert sizes[0] == low
        assert sizes[-1] <= high
        assert list(sizes) == sorted(set(sizes))
