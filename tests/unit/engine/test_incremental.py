"""A `Planner` that follows a cluster through its changes plans, at every step, exactly what one
that sees it for the first time does."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.plan import Plan, Planner, plan
from controlplane.engine.policy import PolicySet
from controlplane.engine.serialize import snapshot_from_json, snapshot_to_json, to_json
from controlplane.engine.snapshot import (
    ClusterSnapshot,
    DemandHistory,
    Departure,
    History,
    NodeHistory,
    TrainerReport,
)
from controlplane.engine.types import PodPhase, Taint
from tests.builders import GPU, NOW, make_flight, make_node, make_pod
from tests.random_clusters import CYCLE_S, Case, carried_out, clusters, part

Change = Callable[[ClusterSnapshot, random.Random], ClusterSnapshot]


def _one(parts: tuple, dice: random.Random, **fields: object) -> tuple:
    """The parts with some fields of one of them changed."""
    if not parts:
        return parts
    at = dice.randrange(len(parts))
    return (*parts[:at], dataclasses.replace(parts[at], **fields), *parts[at + 1 :])


def _without(parts: tuple, dice: random.Random) -> tuple:
    at = dice.randrange(len(parts) + 1)
    return (*parts[:at], *parts[at + 1 :])


def pod_comes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    node = dice.choice([None, *(n.name for n in snapshot.nodes), "gone"])
    requests = {dice.choice([GPU, "example.com/new"]): dice.choice([1, 8])}
    name = f"new-{dice.random()}"
    pod = make_pod(name, node=node, requests=requests, priority=dice.choice([10, 900]))
    return dataclasses.replace(snapshot, pods=(*snapshot.pods, pod))


def pod_goes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    return dataclasses.replace(snapshot, pods=_without(snapshot.pods, dice))


def pod_changes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    fields = dice.choice(
        [
            {"ready": False},
            {"ready": True},
            {"deleting": True, "deletion_due": NOW - dice.choice([0, 900])},
            {"phase": PodPhase.SUCCEEDED, "ready": False},
            {"node": None, "ready": False, "phase": PodPhase.PENDING},
            {"nominated_node": "n0"},
            {"requests": {GPU: 2}},
        ]
    )
    return dataclasses.replace(snapshot, pods=_one(snapshot.pods, dice, **fields))


def node_comes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    node = make_node(f"x{dice.random()}", dice.choice([0, 8]))
    return dataclasses.replace(snapshot, nodes=(*snapshot.nodes, node))


def node_goes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    return dataclasses.replace(snapshot, nodes=_without(snapshot.nodes, dice))


def node_changes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    fields = dice.choice(
        [
            {"ready": False, "not_ready_since": NOW},
            {"ready": True, "not_ready_since": None},
            {"unschedulable": True},
            {"labels": {"topology.kubernetes.io/rack": "r9"}},
            {"taints": (Taint("a", "b", "NoSchedule"),)},
            {"allocatable": {GPU: 4, "cpu": 128_000}},
            {"allocatable": {"example.com/new": 8, "cpu": 128_000}},
            {"departure": Departure("drain", None, "taint")},
        ]
    )
    return dataclasses.replace(snapshot, nodes=_one(snapshot.nodes, dice, **fields))


def nodes_change_places(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    """Nothing happens, but everything is listed in another order."""
    return dataclasses.replace(
        snapshot,
        nodes=tuple(dice.sample(snapshot.nodes, len(snapshot.nodes))),
        pods=tuple(dice.sample(snapshot.pods, len(snapshot.pods))),
        workloads=tuple(dice.sample(snapshot.workloads, len(snapshot.workloads))),
    )


def workload_changes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    fields = dice.choice(
        [
            {"granted": dice.randint(1, 5)},
            {"suspended": True},
            {"suspended": False},
            {"finished": True},
            {"priority": dice.choice([50, 300])},
            {"queue": "red"},
            {"policy": "nobody"},
            {"hints": tuple(p.name for p in snapshot.pods[:2])},
        ]
    )
    return dataclasses.replace(snapshot, workloads=_one(snapshot.workloads, dice, **fields))


def workload_goes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    return dataclasses.replace(snapshot, workloads=_without(snapshot.workloads, dice))


def record_changes(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    """Reports, histories and commands come and go."""
    if not snapshot.workloads:
        return snapshot
    job = dice.choice(snapshot.workloads)
    rates = {1: 100.0, 2: dice.choice([100.0, 190.0])}
    report = TrainerReport(productive=1, throughput=rates, reported_at=NOW, attained=5.0)
    history = dice.choice([History(), History(last_resize_at=NOW), History(short_since=NOW - 900)])
    flights = tuple(f for f in snapshot.in_flight if f.workload != job.key)
    if dice.random() < 0.5:
        flights = (*flights, make_flight(job, dice.randint(0, 5), state="applied"))
    return dataclasses.replace(
        snapshot,
        reports=dice.choice([{}, {**snapshot.reports, job.key: report}]),
        history=dice.choice([{}, {**snapshot.history, job.key: history}]),
        in_flight=flights,
        node_history=dice.choice([{}, {"n0": NodeHistory((NOW - 3, NOW - 2, NOW - 1))}]),
        demand_history=dice.choice([{}, {"Deployment/ml/web-0": DemandHistory(NOW - 900)}]),
    )


def nothing_known(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    return dataclasses.replace(snapshot, complete=dice.random() < 0.5)


def all_new_objects(snapshot: ClusterSnapshot, dice: random.Random) -> ClusterSnapshot:
    """The observer listed anew: nothing has changed, and nothing is the same object."""
    return snapshot_from_json(snapshot_to_json(snapshot))


CHANGES: tuple[Change, ...] = (
    pod_comes, pod_goes, pod_changes, node_comes, node_goes, node_changes, nodes_change_places,
    workload_changes, workload_goes, record_changes, nothing_known, all_new_objects,
)  # fmt: skip


def text(made: Plan) -> str:
    return json.dumps(to_json(made))


@part(0.2)
@given(clusters(), st.integers(0, 2**32 - 1), st.lists(st.sampled_from(CHANGES), max_size=25))
def test_a_planner_that_follows_the_changes_plans_the_same(
    case: Case, seed: int, changes: list[Change]
) -> None:
    snapshot, policies = case
    dice = random.Random(seed)
    planner = Planner()
    for at, change in enumerate([all_new_objects, *changes]):
        snapshot = change(snapshot, dice)
        now = NOW + at
        assert text(planner.plan(snapshot, policies, now)) == text(plan(snapshot, policies, now))


@part(0.1)
@given(clusters())
def test_a_planner_plans_the_same_while_its_plans_are_carried_out(case: Case) -> None:
    snapshot, policies = case
    planner, now = Planner(), NOW
    for _ in range(8):
        made = planner.plan(snapshot, policies, now)
        assert text(made) == text(plan(snapshot, policies, now))
        snapshot = carried_out(snapshot, policies, made)
        now += CYCLE_S


@part(0.05)
@given(clusters(), clusters())
def test_a_planner_may_be_given_another_cluster_and_other_policies(one: Case, two: Case) -> None:
    planner = Planner()
    others = ((one.snapshot, two.policies), (one.snapshot, PolicySet()))
    for snapshot, policies in (one, two, *others, one):
        made = planner.plan(snapshot, policies, NOW)
        assert text(made) == text(plan(snapshot, policies, NOW))
