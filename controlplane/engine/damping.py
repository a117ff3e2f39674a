"""What keeps a cluster calm: flaps, back-off after failures, restart budget, the cost of a pause.

Nothing here holds back a reclaim for higher priority.
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.snapshot import DemandHistory, History, Move

HOUR_S = 3600.0
#: back-off after failed resizes: the first wait and the longest, seconds
BASE_S = 60.0
MOST_S = 3600.0


def flaps(history: History, cooldown: float) -> tuple[tuple[Move, Move], ...]:
    """The resizes that were undone within `cooldown` seconds, each with the move that undid it:
    the first after which the job was back at the size before, or beyond it."""
    found = []
    for i, move in enumerate(history.moves):
        for later in history.moves[i + 1 :]:
            if later.at - move.at >= cooldown:
                break
            if _undoes(move, later):
                found.append((move, later))
                break
    return tuple(found)


def _undoes(move: Move, later: Move) -> bool:
    if move.after > move.before:
        return later.after <= move.before
    return move.after < move.before <= later.after


def back_off(
    failed_resizes: Sequence[float], now: float, base: float = BASE_S, most: float = MOST_S
) -> float | None:
    """Until when a job isn't resized again after its last resizes failed at these times (rising,
    since the last that succeeded); None: it may be. The wait doubles with each, up to `most`
    seconds."""
    if not failed_resizes:
        return None
    until = failed_resizes[-1] + _doubled(base, len(failed_resizes), most)
    return until if until > now else None


def budget_free_at(resizes: Sequence[float], budget: int | None, now: float) -> float | None:
    """When the next resize is within the budget (so many within any hour): `now` if it is, else
    when the oldest that is in the way is an hour old; None for a budget of 0, which never frees.
    `resizes` are times, rising."""
    if budget is None:
        return now
    if budget <= 0:
        return None
    recent = [at for at in resizes if now - at < HOUR_S]
    return now if len(recent) < budget else recent[-budget] + HOUR_S


def resize_cost(pause_s: float, replicas: int, accelerators: int) -> float:
    """Accelerator-seconds that a resize costs: all of a job's replicas, with so many accelerators
    each, stand still for its pause."""
    return max(0.0, pause_s) * replicas * accelerators


def bind_back_off(history: DemandHistory, policy: ClusterPolicy, now: float) -> float | None:
    """Until when a pending demand gets no places because it fitted and wasn't bound within
    `bind_timeout_s` (an admission webhook or the scheduler refuses it: KAI-Scheduler 2075); None:
    it may have them. The wait is `bind_timeout_s` after the first time, doubling up to an hour."""
    current = _current(history, policy, now)
    if current.refused_at is None or not current.refusals:
        return None
    most = max(MOST_S, policy.bind_timeout_s)
    until = current.refused_at + _doubled(policy.bind_timeout_s, current.refusals, most)
    return until if until > now else None


def next_demand_history(
    previous: DemandHistory, fits: bool, now: float, policy: ClusterPolicy
) -> DemandHistory:
    """What the next cycle must know of a demand, given whether it fits in this one. What its
    back-off keeps from its places doesn't fit. Past refusals count for as long as it waits."""
    current = _current(previous, policy, now)
    if not fits:
        return DemandHistory(None, current.refusals, current.refused_at)
    since = now if current.fits_since is None else current.fits_since
    return DemandHistory(since, current.refusals, current.refused_at)


def bind_check_at(history: DemandHistory, policy: ClusterPolicy, now: float) -> float | None:
    """When after `now` a demand with this history gives its place back, or may have one again."""
    if history.fits_since is not None:
        return max(now, history.fits_since + policy.bind_timeout_s)
    return bind_back_off(history, policy, now)


def _current(history: DemandHistory, policy: ClusterPolicy, now: float) -> DemandHistory:
    """The history with the refusal that became due since it was written."""
    since = history.fits_since
    if since is None or now - since < policy.bind_timeout_s:
        return history
    return DemandHistory(None, history.refusals + 1, now)


def _doubled(base: float, times: int, most: float) -> float:
    """`base` doubled with each time after the first, at most `most`."""
    return float(min(most, base * 2.0 ** min(times - 1, 64)))
