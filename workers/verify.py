"""Has a written command come true? Pure: asked again on each newer snapshot.

Done means that the cluster shows it (the pods that should run are ready, those that should leave
are gone) and, where the trainer reports, that it trains with exactly that many replicas. Until
then it is in flight; when it takes longer than the job's policy allows it times out, with what was
missing, and is planned again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from controlplane.engine.snapshot import ClusterSnapshot, Pod, TrainerReport, Workload
from controlplane.engine.types import PodPhase, WorkloadKey


class Outcome(StrEnum):
    WAIT = "wait"
    DONE = "done"
    TIMED_OUT = "timed_out"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Written:
    """A command that was written to the cluster. Times in unix seconds."""

    workload: WorkloadKey
    uid: str
    from_replicas: int
    to_replicas: int
    applied_at: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Check:
    outcome: Outcome
    code: str
    sentence: str


def check(
    written: Written, snapshot: ClusterSnapshot, report: TrainerReport | None, now: float
) -> Check:
    """How a written command stands on a snapshot (which may be older than the write)."""
    workload = next((w for w in snapshot.workloads if w.key == written.workload), None)
    if workload is None or workload.uid != written.uid or workload.finished:
        sentence = f"{written.workload} ended before the resize was confirmed."
        return Check(Outcome.SUPERSEDED, "workload_ended", sentence)
    if workload.granted != written.to_replicas:
        if snapshot.taken_at <= written.applied_at:
            return Check(Outcome.WAIT, "not_seen_yet", "The snapshot is older than the write.")
        if now - written.applied_at > written.timeout_s or _changed_since(workload, written):
            sentence = f"Somebody set {written.workload} to {workload.granted} replicas since."
            return Check(Outcome.SUPERSEDED, "changed_by_another", sentence)
        return Check(Outcome.WAIT, "not_seen_yet", "The cluster doesn't show the write yet.")
    missing = _missing(written, workload, snapshot, report)
    if not missing:
        return Check(Outcome.DONE, "confirmed", _confirmed(written, report))
    if now - written.applied_at > written.timeout_s:
        sentence = f"Not confirmed within {written.timeout_s:g} s: {missing}."
        return Check(Outcome.TIMED_OUT, "not_confirmed", sentence)
    return Check(Outcome.WAIT, "in_progress", missing)


def running_replicas(workload: Workload, snapshot: ClusterSnapshot) -> int:
    """Replicas of which every pod is ready and none is leaving."""
    by_replica: dict[int, int] = defaultdict(int)
    for pod in snapshot.pods:
        if pod.workload == workload.key and pod.replica_index is not None and is_running(pod):
            by_replica[pod.replica_index] += 1
    return sum(1 for n in by_replica.values() if n >= workload.shape.pods_per_replica)


def is_running(pod: Pod) -> bool:
    return pod.ready and not pod.deleting and pod.phase == PodPhase.RUNNING


def _missing(
    written: Written, workload: Workload, snapshot: ClusterSnapshot, report: TrainerReport | None
) -> str:
    """What the cluster or the trainer doesn't show yet; "" when nothing."""
    leaving = [
        pod
        for pod in snapshot.pods
        if pod.workload == written.workload
        and pod.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        and (pod.deleting or (pod.replica_index or 0) >= written.to_replicas)
    ]
    if leaving:
        return f"{_count(len(leaving), 'pod')} still leaving"
    running = running_replicas(workload, snapshot)
    if running != written.to_replicas:
        return f"{running} of {written.to_replicas} replicas ready"
    # a job that was suspended has nobody left to report
    if written.to_replicas and report is not None and report.productive is not None:
        if report.reported_at <= written.applied_at:
            return "the trainer has not reported since"
        if report.productive != written.to_replicas:
            return f"the trainer works with {report.productive} of {written.to_replicas} replicas"
    return ""


def _changed_since(workload: Workload, written: Written) -> bool:
    """Whether the object shows neither the old nor the new size."""
    return workload.granted not in (written.from_replicas, written.to_replicas)


def _confirmed(written: Written, report: TrainerReport | None) -> str:
    by = (
        "the cluster and the trainer" if report and report.productive is not None else "the cluster"
    )
    return f"Confirmed by {by}: {written.to_replicas} replicas."


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
