"""Is a command still valid on a newer snapshot? Asked just before it is written."""

from __future__ import annotations

from controlplane.engine.accounting import missing_pods, pods_by_workload
from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.placement import ENDED, Capacity, place_of, shape_of
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import ClusterSnapshot, Workload
from controlplane.engine.types import WorkloadKey


def still_valid(command: Command, snapshot: ClusterSnapshot, now: float) -> Reason | None:
    """Why the command may no longer be written; None if it may.

    A shrink is valid as long as the job has the size that it was decided on; what grows or starts
    must also still fit, beside what others were granted and every waiting pod of higher priority.
    """
    workload = next((w for w in snapshot.workloads if w.key == command.workload), None)
    replaced = workload is not None and command.uid not in ("", workload.uid)
    if workload is None or workload.finished or replaced:
        return because(ReasonCode.WORKLOAD_GONE, workload=str(command.workload))
    if workload.suspended != (command.kind is CommandKind.ADMIT):
        return because(ReasonCode.SUSPENSION_CHANGED, workload=str(command.workload))
    if command.kind is not CommandKind.ADMIT and workload.granted != command.from_replicas:
        return because(
            ReasonCode.SIZE_CHANGED,
            workload=str(command.workload),
            granted=workload.granted,
            from_=command.from_replicas,
        )
    return _fits(command, workload, snapshot)


def _fits(command: Command, workload: Workload, snapshot: ClusterSnapshot) -> Reason | None:
    before = 0 if command.kind is CommandKind.ADMIT else command.from_replicas
    pods = (command.to_replicas - before) * workload.shape.pods_per_replica
    if pods <= 0:
        return None
    room = Capacity.of(snapshot)
    counted = {workload.key, *_take_granted(room, workload, snapshot)}
    waiting = [
        pod
        for pod in snapshot.pods
        if pod.priority > workload.priority
        and pod.phase not in ENDED
        and not pod.deleting
        and place_of(pod) is None
        and pod.workload not in counted
    ]
    for pod in sorted(waiting, key=lambda p: (-p.priority, p.created_at, p.name)):
        room.take_now(shape_of(pod))
    found = room.fitting(shape_of(workload.shape), pods)
    if found >= pods:
        return None
    return because(ReasonCode.NO_LONGER_FITS, to=command.to_replicas, missing=pods - found)


def _take_granted(
    room: Capacity, workload: Workload, snapshot: ClusterSnapshot
) -> list[WorkloadKey]:
    """Take the places of what other elastic jobs were granted and no pod shows yet; whose."""
    others = [
        other
        for other in snapshot.workloads
        if other.key != workload.key
        and other.managed
        and other.policy is not None
        and not (other.suspended or other.finished)
    ]
    pods = pods_by_workload(snapshot)
    for other in sorted(others, key=lambda w: (-w.priority, w.created_at, w.key)):
        for _ in range(missing_pods(other, other.granted, pods)):
            room.take_now(shape_of(other.shape))
    return [other.key for other in others]
