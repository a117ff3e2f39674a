"""Is a command still valid on a newer snapshot? Asked just before it is written."""

from __future__ import annotations

from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.placement import ENDED, Capacity, place_of, shape_of
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import ClusterSnapshot, Workload


def still_valid(command: Command, snapshot: ClusterSnapshot, now: float) -> Reason | None:
    """Why the command may no longer be written; None if it may.

    A shrink is valid as long as the job has the size that it was decided on; what grows or starts
    must also still fit, beside every waiting pod of higher priority.
    """
    workload = next((w for w in snapshot.workloads if w.key == command.workload), None)
    if workload is None or workload.finished:
        return because(ReasonCode.WORKLOAD_GONE, workload=str(command.workload))
    if workload.suspended != (command.kind is CommandKind.ADMIT):
        return because(ReasonCode.SUSPENSION_CHANGED, workload=str(command.workload))
    if command.kind is CommandKind.RESIZE and workload.granted != command.from_replicas:
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
    waiting = [
        pod
        for pod in snapshot.pods
        if pod.priority > workload.priority
        and pod.phase not in ENDED
        and not pod.deleting
        and place_of(pod) is None
        and pod.workload != workload.key
    ]
    for pod in sorted(waiting, key=lambda p: (-p.priority, p.created_at, p.name)):
        room.take_now(shape_of(pod))
    found = room.fitting(shape_of(workload.shape), pods)
    if found >= pods:
        return None
    return because(ReasonCode.NO_LONGER_FITS, to=command.to_replicas, missing=pods - found)
