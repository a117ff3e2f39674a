"""When jobs lost a replica to a node: what makes a node a repeat offender.

Read off what is observed: a pod that ran, of a replica that was to stay, doesn't any more, and its
node is gone, isn't ready or doesn't offer a device: that is the node's doing. A pod that failed on
a node that looks well may be the node's fault (a device that falls off the bus) or the job's. It
counts where most of the job ran on, and only while the job hasn't failed so on several nodes: then
it is the job that is broken, wherever it runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from apps.clusters.models import Cluster
from apps.training.choices import FaultCause, ReplicaPhase
from apps.training.models import NodeFault, Replica, TrainingJob
from apps.training.observed import ObservedJob
from controlplane.engine.snapshot import Node, NodeHistory

#: what comes of one cause within this time is one fault
ONE_FAULT = timedelta(minutes=10)
#: a job whose pods failed on more nodes than this is at fault itself
MOST_NODES = 2


def lost_to_nodes(
    before: Iterable[Replica], observed: ObservedJob, nodes: Mapping[str, Node]
) -> dict[str, FaultCause]:
    """Nodes that a job has lost a replica to since its replicas were `before`. Pure."""
    workload = observed.workload
    if workload.finished or workload.suspended:
        return {}
    now = {pod["name"]: pod for replica in observed.replicas.values() for pod in replica.pods}
    found: dict[str, FaultCause] = {}
    failed: set[str] = set()
    ran = stopped = 0
    for replica in before:
        if replica.index >= workload.granted:
            continue
        for pod in replica.pods:
            if pod["phase"] != ReplicaPhase.RUNNING or not pod["node"]:
                continue
            ran += 1
            phase = now.get(pod["name"], {}).get("phase")
            if phase in (ReplicaPhase.RUNNING, ReplicaPhase.SUCCEEDED):
                continue
            stopped += 1
            cause = _cause(nodes.get(pod["node"]))
            if cause is not None:
                found[pod["node"]] = cause
            elif phase == ReplicaPhase.FAILED:
                failed.add(pod["node"])
    if stopped * 2 < ran:
        found |= dict.fromkeys(failed - set(found), FaultCause.POD_FAILED)
    return found


def _cause(node: Node | None) -> FaultCause | None:
    if node is None:
        return FaultCause.NODE_GONE
    if not node.ready:
        return FaultCause.NODE_NOT_READY
    if any(n > 0 for n in node.unhealthy.values()):
        return FaultCause.DEVICE_UNHEALTHY
    return None


def record(job: TrainingJob, lost: Mapping[str, FaultCause], at: datetime) -> int:
    """Record what `lost_to_nodes` found; how many were new. The same again within `ONE_FAULT` is
    one fault."""
    if not lost:
        return 0
    recent = NodeFault.objects.filter(job=job, at__gt=at - ONE_FAULT, node_name__in=list(lost))
    known = set(recent.values_list("node_name", flat=True))
    rows = [
        NodeFault(cluster=job.cluster, job=job, node_name=node, cause=cause, at=at)
        for node, cause in sorted(lost.items())
        if node not in known
    ]
    NodeFault.objects.bulk_create(rows)
    return len(rows)


def histories(cluster: Cluster, since: datetime) -> dict[str, NodeHistory]:
    """The faults of each node since then that are its own, as the engine reads them."""
    rows = list(
        NodeFault.objects.filter(cluster=cluster, at__gte=since)
        .order_by("at", "id")
        .values_list("job_id", "node_name", "cause", "at")
    )
    failed_on: dict[Any, set[str]] = defaultdict(set)
    for job_id, node, cause, _ in rows:
        if cause == FaultCause.POD_FAILED:
            failed_on[job_id].add(node)
    faults: dict[str, list[float]] = defaultdict(list)
    for job_id, node, cause, at in rows:
        if cause != FaultCause.POD_FAILED or len(failed_on[job_id]) <= MOST_NODES:
            faults[node].append(at.timestamp())
    return {node: NodeHistory(tuple(times)) for node, times in sorted(faults.items())}
