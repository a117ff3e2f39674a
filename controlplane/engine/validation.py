"""Is a command still valid on a newer snapshot? Asked just before it is written."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.engine.accounting import missing_pods, pods_by_workload
from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.placement import ENDED, Capacity, PodShape, place_of, shape_of
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import ClusterSnapshot, Workload


def still_valid(command: Command, snapshot: ClusterSnapshot, now: float) -> Reason | None:
    """Why the command may no longer be written; None if it may.

    A shrink is valid as long as the job has the size that it was decided on; what grows or starts
    must also still fit, beside what others were granted and every waiting pod of higher priority.
    Who starts comes before replicas that are missing at a job of lower priority.
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
    starts = command.kind is CommandKind.ADMIT
    for _, shape, count in sorted(_others(workload, snapshot, starts), key=lambda one: one[0]):
        for _ in range(count):
            room.take_now(shape)
    found = room.fitting(shape_of(workload.shape), pods)
    if found >= pods:
        return None
    return because(ReasonCode.NO_LONGER_FITS, to=command.to_replicas, missing=pods - found)


def _others(
    workload: Workload, snapshot: ClusterSnapshot, starts: bool
) -> Iterator[tuple[tuple[int, int, float, str], PodShape, int]]:
    """What else is promised places, in the order in which a plan serves it: replicas that other
    elastic jobs were granted and no pod shows yet (of a job that `starts`: those of its priority or
    higher), and pods of higher priority that wait."""
    granted = set()
    pods = pods_by_workload(snapshot)
    for other in snapshot.workloads:
        if not other.managed or other.policy is None or other.suspended or other.finished:
            continue
        granted.add(other.key)
        if other.key != workload.key and not (starts and other.priority < workload.priority):
            missing = missing_pods(other, other.granted, pods)
            order = (-other.priority, 0, other.created_at, str(other.key))
            yield order, shape_of(other.shape), missing
    for pod in snapshot.pods:
        waits = pod.phase not in ENDED and not pod.deleting and place_of(pod) is None
        if waits and pod.priority > workload.priority and pod.workload not in granted:
            yield (-pod.priority, 1, pod.created_at, pod.name), shape_of(pod), 1
