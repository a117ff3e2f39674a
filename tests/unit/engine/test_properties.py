"""What holds for every plan, whatever the cluster."""

from __future__ import annotations

import dataclasses
import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.engine.commands import CommandKind
from controlplane.engine.placement import Capacity, shape_of
from controlplane.engine.plan import plan
from controlplane.engine.policy import PolicySet, valid_sizes, validate
from controlplane.engine.serialize import (
    policies_from_json,
    policies_to_json,
    snapshot_from_json,
    snapshot_to_json,
    to_json,
)
from controlplane.engine.snapshot import ClusterSnapshot
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
