"""Damping: why a job isn't resized yet, and when that ends by itself. A reclaim for a higher
priority never waits for any of it.
"""

from __future__ import annotations

from controlplane.engine.damping import back_off, budget_free_at
from controlplane.engine.jobs import Job
from controlplane.engine.reasons import Reason, ReasonCode, because

HOUR_S = 3600.0

#: why not, and until when (None: time alone doesn't end it)
Rest = tuple[Reason, float | None]


def held_back(job: Job, now: float) -> Rest | None:
    """Why a job that could grow doesn't yet; None: it may."""
    policy, size = job.policy, job.next_size()
    assert policy is not None
    assert size is not None
    assert job.growth_wanted_since is not None
    waited = now - job.growth_wanted_since
    if waited < policy.scaling_timeout:
        reason = because(
            ReasonCode.STABILIZING,
            next=size, waited_s=float(waited), timeout_s=policy.scaling_timeout,
        )  # fmt: skip
        return reason, job.growth_wanted_since + policy.scaling_timeout
    return rests(job, size, now)


def rests(job: Job, size: int, now: float) -> Rest | None:
    """Why a job keeps its size for now, as a giver too: cooldown, snooze, back-off, budget."""
    policy, history = job.policy, job.history
    assert policy is not None
    for code, last, timeout in (
        (ReasonCode.COOLING_DOWN, history.last_resize_at, policy.cooldown),
        (ReasonCode.SNOOZED, history.last_restart_at, policy.scale_up_snooze),
    ):
        if last is not None and now - last < timeout:
            reason = because(code, next=size, since_s=float(now - last), timeout_s=timeout)
            return reason, last + timeout
    until = back_off(history.failed_resizes, now)
    if until is not None:
        reason = because(
            ReasonCode.BACKING_OFF,
            next=size, failures=len(history.failed_resizes), wait_s=float(until - now),
        )  # fmt: skip
        return reason, until
    budget = policy.restart_budget
    if budget is None:
        return None
    recent = sum(now - at < HOUR_S for at in history.resizes)
    if recent < budget:
        return None
    reason = because(ReasonCode.BUDGET_SPENT, next=size, resizes=recent, budget=budget)
    return reason, budget_free_at(history.resizes, budget, now)
