"""A job's status: counts, conditions, times, as the real controller writes them."""

from __future__ import annotations

from controlplane.sandbox.clock import parse_rfc3339, rfc3339
from controlplane.sandbox.controllers.indexes import index_of, written
from controlplane.sandbox.controllers.job_state import JobState, Verdict
from controlplane.sandbox.controllers.pods import (
    condition_of,
    is_active,
    is_ready,
    is_terminating,
    is_true,
    set_condition,
)
from controlplane.sandbox.kinds import JOB
from controlplane.sandbox.objects import Object, clone, meta
from controlplane.sandbox.store import Store


def is_finished(job: Object) -> bool:
    """Whether the job has its final condition."""
    return is_true(job, "Complete") or is_true(job, "Failed")


def finished_at(job: Object) -> float | None:
    """When it got its final condition (unix seconds)."""
    for kind in ("Complete", "Failed"):
        found = condition_of(job, kind)
        if found is not None and found["status"] == "True":
            return parse_rfc3339(found["lastTransitionTime"])
    return None


def deadline(state: JobState) -> float | None:
    """When activeDeadlineSeconds will have passed."""
    seconds = state.job["spec"].get("activeDeadlineSeconds")
    started = (state.job.get("status") or {}).get("startTime")
    if seconds is None or not started or is_finished(state.job):
        return None
    return parse_rfc3339(started) + seconds


def note_uncounted(store: Store, state: JobState, ended: list[Object]) -> None:
    """Note which pods are about to be counted, so that a crash in between counts none twice."""
    new = clone(state.job)
    status = new.setdefault("status", {})
    uncounted: Object = {}
    for pod in ended:
        if state.is_success(pod):
            uncounted.setdefault("succeeded", []).append(meta(pod)["uid"])
        elif state.counts_as_failure(pod):
            uncounted.setdefault("failed", []).append(meta(pod)["uid"])
    if state.indexed:
        succeeded = {index_of(pod) or 0 for pod in ended if state.is_success(pod)}
        within = {index for index in succeeded if index < (state.completions or 0)}
        _indexes(status, "completedIndexes", state.succeeded_indexes | within)
    if uncounted:
        status["uncountedTerminatedPods"] = uncounted
        state.job = store.update(JOB, new, subresource="status")


def write(
    store: Store, state: JobState, verdict: Verdict | None, pods: list[Object], now: float
) -> None:
    """Write counts and conditions; `pods`: the job's pods as they are now."""
    new = clone(state.job)
    status = new.setdefault("status", {})
    active = [pod for pod in pods if is_active(pod)]
    counts = {
        "active": len(active),
        "succeeded": state.succeeded,
        "failed": state.failed,
    }
    for name, value in counts.items():
        if value:
            status[name] = value
        else:
            status.pop(name, None)
    status["ready"] = sum(map(is_ready, active))
    status["terminating"] = sum(map(is_terminating, pods))
    status["uncountedTerminatedPods"] = {}
    if state.indexed:
        _indexes(status, "completedIndexes", state.succeeded_indexes)
        if "backoffLimitPerIndex" in state.job["spec"]:
            status["failedIndexes"] = written(state.failed_indexes)
    _suspension(status, state, verdict, now)
    if verdict is not None:
        _verdict(status, verdict, now)
    store.update(JOB, new, subresource="status")


def _indexes(status: Object, name: str, indexes: set[int]) -> None:
    if indexes:
        status[name] = written(indexes)
    else:
        status.pop(name, None)


def _suspension(status: Object, state: JobState, verdict: Verdict | None, now: float) -> None:
    if verdict is not None:
        return
    known = next((c for c in status.get("conditions") or () if c["type"] == "Suspended"), None)
    if state.suspended:
        set_condition(status, "Suspended", "True", "JobSuspended", "Job suspended", now)
        status.pop("startTime", None)
        return
    if known is not None and known["status"] == "True":
        set_condition(status, "Suspended", "False", "JobResumed", "Job resumed", now)
    status.setdefault("startTime", rfc3339(now))


def _verdict(status: Object, verdict: Verdict, now: float) -> None:
    """The interim condition at once, the final one when the last pod has ended."""
    set_condition(status, verdict.interim, "True", verdict.reason, verdict.message, now)
    if status.get("active") or status["terminating"]:
        return
    set_condition(status, verdict.final, "True", verdict.reason, verdict.message, now)
    if verdict.final == "Complete":
        status["completionTime"] = rfc3339(now)
