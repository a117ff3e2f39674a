"""Clusters, policies and questions to plans, as the scenarios of the engine use them."""

from __future__ import annotations

import dataclasses

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.plan import Plan, plan
from controlplane.engine.policy import ElasticityPolicy, PolicySet
from controlplane.engine.queues import CohortPolicy, QueuePolicy, Quota
from controlplane.engine.reasons import ReasonCode
from controlplane.engine.snapshot import ClusterSnapshot
from tests.builders import (
    GPU,
    NOW,
    make_key,
    make_nodes,
    make_pod,
    make_policy,
    make_replicas,
    make_snapshot,
    make_workload,
)
from tests.random_clusters import CYCLE_S, carried_out

NAMES = [f"n{i:02}" for i in range(32)]
AMD = "amd.com/gpu"
RACK = "rack"


def running(name: str, nodes, **fields):
    """A job with one replica on each node (None: pending)."""
    workload = make_workload(name, granted=len(nodes), **fields)
    return workload, make_replicas(workload, nodes)


def suspended(name: str, granted: int = 1, **fields):
    return make_workload(name, granted=granted, suspended=True, **fields), []


def waiting(name: str, n: int = 1, gpus: int = 8, priority: int = 1000, **fields):
    key = make_key(name, kind="Deployment")
    return [
        make_pod(f"{name}-{i}", gpus=gpus, priority=priority, workload=key, **fields)
        for i in range(n)
    ]


def cluster(nodes, *jobs, pods=(), **fields) -> ClusterSnapshot:
    more = {k: fields.pop(k) for k in ("node_history", "demand_history") if k in fields}
    snapshot = make_snapshot(
        make_nodes(nodes) if isinstance(nodes, int) else nodes,
        [*pods, *(pod for _, found in jobs for pod in found)],
        [workload for workload, _ in jobs],
        **fields,
    )
    return dataclasses.replace(snapshot, **more)


def rules(*policies: ElasticityPolicy, queues=(), preemption=None, **fields) -> PolicySet:
    """`fields` are those of the cluster's policy. Queues that name a cohort share one."""
    return PolicySet(
        {policy.name: policy for policy in policies or (make_policy(),)},
        {queue.name: queue for queue in queues},
        {queue.cohort: CohortPolicy(queue.cohort) for queue in queues if queue.cohort},
        preemption or {},
        ClusterPolicy(**fields),
    )


def queue(name: str, nominal: int | None = None, *limits: int | None, **fields) -> QueuePolicy:
    return QueuePolicy(name, quotas={} if nominal is None else {GPU: Quota(nominal, *limits)},
                       **fields)  # fmt: skip


def sizes(made: Plan) -> list[tuple[str, int, int]]:
    """(job, from, to) of every command, by job."""
    return sorted((c.workload.name, c.from_replicas, c.to_replicas) for c in made.commands)


def decision(made: Plan, name: str):
    return next(d for d in made.decisions if d.workload.name == name)


def why(made: Plan, name: str) -> ReasonCode:
    return decision(made, name).reason.code


def waits_for(made: Plan, name: str) -> ReasonCode:
    return next(p.reason.code for p in made.pending if p.workload_or_pod.endswith(f"/{name}"))


def drive(snapshot: ClusterSnapshot, policies: PolicySet, cycles: int):
    """The commands of every cycle that has any, all of them carried out, and the snapshot after the
    last. What leaves is gone two cycles later."""
    found, now = [], NOW
    for _ in range(cycles):
        made = plan(snapshot, policies, now)
        if made.commands:
            found.append(sizes(made))
        snapshot = carried_out(snapshot, policies, made)
        now += CYCLE_S
    return found, snapshot


def granted(snapshot: ClusterSnapshot) -> dict[str, int]:
    return {w.key.name: 0 if w.suspended else w.granted for w in snapshot.workloads}
