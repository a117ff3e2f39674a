"""A large cluster for the engine's benchmarks: full but for a little, with everything going on.

By default 10,000 nodes of 8 accelerators, 2,000 elastic jobs, 20,000 inelastic pods, and 500 pods
and jobs that wait. Made here from a seed; every number is an argument.
"""

from __future__ import annotations

import dataclasses
import random

from controlplane.engine.placement import Capacity, shape_of
from controlplane.engine.plan import Plan, Planner
from controlplane.engine.policy import PolicySet
from controlplane.engine.queues import QueuePolicy, Quota
from controlplane.engine.snapshot import ClusterSnapshot, Pod, TrainerReport, Workload
from controlplane.engine.types import WorkloadKey
from tests.builders import (
    GPU,
    NOW,
    make_key,
    make_nodes,
    make_pod,
    make_policies,
    make_policy,
    make_shape,
    make_snapshot,
    make_workload,
)

PRIORITIES = (100, 200, 300)
TEAMS = 8
SIZES = (1, 2, 4, 8)


def big_cluster(
    nodes: int = 10_000,
    jobs: int = 2_000,
    inelastic: int = 20_000,
    pending: int = 500,
    free: float = 0.02,
    seed: int = 0,
) -> tuple[ClusterSnapshot, PolicySet]:
    """The cluster and its policies: `free` is the part of the nodes that stays empty."""
    shuffle = random.Random(seed)
    machines = [
        dataclasses.replace(
            node,
            name=f"node-{i:05}",
            labels={"rack": f"rack-{i // 16:04}", "block": f"block-{i // 256:03}"},
        )
        for i, node in enumerate(make_nodes(nodes))
    ]
    names = [node.name for node in machines]
    serving = nodes * 45 // 100
    pods = list(_serving_pods(names[:serving], inelastic, shuffle))
    workloads = []
    places = names[serving : nodes - int(nodes * free)]
    each = len(places) // max(1, jobs)
    for i in range(jobs):
        mine = places[i * each : (i + 1) * each]
        job, its = _job(i, mine)
        workloads.append(job)
        pods.extend(its)
    waiting_jobs, waiting_pods = _pending(pending, shuffle)
    workloads.extend(waiting_jobs)
    pods.extend(waiting_pods)
    reports = {
        job.key: TrainerReport(
            productive=job.granted,
            committed_steps=1000,
            total_steps=100_000,
            throughput={job.granted: 100.0 * job.granted**0.9},
            deviation={job.granted: 0.02},
            resize_cost_s=1.0,
            samples_per_step=512.0,
            reported_at=NOW,
        )
        for job in workloads
        if job.granted
    }
    return make_snapshot(machines, pods, workloads, reports=reports), _policies()


def _policies() -> PolicySet:
    queues = {
        f"team-{i}": QueuePolicy(
            name=f"team-{i}",
            cohort="all",
            weight=1.0 + i % 3,
            quotas={GPU: Quota(nominal=10_000)},
        )
        for i in range(TEAMS)
    }
    made = make_policies(make_policy(max_replicas=16))
    return dataclasses.replace(made, queues=queues)


def _job(i: int, places: list[str]) -> tuple[Workload, list[Pod]]:
    job = make_workload(
        f"job-{i:05}",
        granted=len(places),
        priority=PRIORITIES[i % len(PRIORITIES)],
        queue=f"team-{i % TEAMS}",
        suspended=not places,
    )
    pods = [_replica(job, index, node) for index, node in enumerate(places)]
    return job, pods


def _replica(job: Workload, index: int, node: str | None) -> Pod:
    return make_pod(
        f"{job.key.name}-{index}",
        node=node,
        workload=job.key,
        replica_index=index,
        priority=job.priority,
        labels={"concertina.dev/team": job.team, "app": job.key.name},
    )


def _serving_pods(names: list[str], count: int, shuffle: random.Random) -> list[Pod]:
    """Inelastic pods of 1 to 8 accelerators, packed."""
    pods: list[Pod] = []
    room = dict.fromkeys(names, 8)
    queue = iter(names)
    node = next(queue)
    for i in range(count):
        gpus = shuffle.choice((1, 1, 1, 2, 2))
        while room[node] < gpus:
            node = next(queue)
        room[node] -= gpus
        owner: WorkloadKey = make_key(f"serve-{i % 200:03}", kind="Deployment")
        pods.append(make_pod(f"serve-{i:05}", gpus=gpus, node=node, priority=1000, workload=owner))
    return pods


def _pending(count: int, shuffle: random.Random) -> tuple[list[Workload], list[Pod]]:
    """Half are pods of no workload, of low priority, that fit nowhere; half are suspended jobs with
    large minimums."""
    jobs, pods = [], []
    for i in range(count):
        if i % 2:
            pods.append(
                make_pod(
                    f"wait-{i:04}",
                    gpus=shuffle.choice(SIZES),
                    priority=shuffle.choice((0, 10, 20, 30)),
                    node_selector={"zone": "none"} if i % 4 == 1 else {},
                    created_at=NOW - i,
                )
            )
        else:
            jobs.append(
                make_workload(
                    f"late-{i:04}",
                    granted=0,
                    suspended=True,
                    priority=shuffle.choice((50, 100)),
                    queue=f"team-{i % TEAMS}",
                    created_at=NOW - i,
                    shape=make_shape(16),
                )
            )
    return jobs, pods


def at_rest(snapshot: ClusterSnapshot, policies: PolicySet) -> ClusterSnapshot:
    """The cluster once everything that is commanded has been carried out."""
    planner = Planner()
    for _ in range(100):
        made = planner.plan(snapshot, policies, NOW)
        if not made.commands:
            return snapshot
        snapshot = _carried_out(snapshot, made)
    raise RuntimeError("the plan of an unchanged cluster doesn't come to rest")


def _carried_out(snapshot: ClusterSnapshot, made: Plan) -> ClusterSnapshot:
    sizes = {command.workload: command.to_replicas for command in made.commands}
    gone = {(c.workload.namespace, name) for c in made.commands for name in c.victims}
    pods = [pod for pod in snapshot.pods if (pod.namespace, pod.name) not in gone]
    room = Capacity(snapshot.nodes, pods)
    workloads = []
    for job in snapshot.workloads:
        if job.key in sizes:
            before, after = job.granted, sizes[job.key]
            job = dataclasses.replace(job, granted=after, suspended=after == 0)
            for index in range(before, after):
                place = room.take_now(shape_of(job.shape))
                pods.append(_replica(job, index, place[0] if place else None))
        workloads.append(job)
    return dataclasses.replace(snapshot, pods=tuple(pods), workloads=tuple(workloads))


def an_event(snapshot: ClusterSnapshot, step: int) -> ClusterSnapshot:
    """The snapshot after a few events: a serving pod goes, another comes, a pod turns ready, a node
    turns NotReady or comes back, a trainer reports."""
    pods = list(snapshot.pods)
    gone = pods.pop((step * 7919) % 20_000 % len(pods))
    pods.append(dataclasses.replace(gone, uid=f"{gone.uid}-{step}", name=f"{gone.name}-{step}"))
    nodes = list(snapshot.nodes)
    at = (step // 2 * 104_729) % len(nodes)
    nodes[at] = dataclasses.replace(nodes[at], ready=not nodes[at].ready)
    reports = dict(snapshot.reports)
    key = next(iter(reports))
    reports[key] = dataclasses.replace(reports[key], committed_steps=1000 + step)
    return dataclasses.replace(
        snapshot, pods=tuple(pods), nodes=tuple(nodes), reports=reports, taken_at=NOW + step
    )
