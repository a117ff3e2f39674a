"""Questions to a plan that is there: nothing is planned again."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.engine.decisions import Decision, PendingDemand, Plan, Reservation


@dataclass(frozen=True, slots=True)
class Why:
    """What a plan says of one workload or pod: its demands that wait, the decision on it if it is a
    managed job, and the places reserved for it."""

    pending: tuple[PendingDemand, ...]
    decision: Decision | None
    reservation: Reservation | None


def why(plan: Plan, name: str) -> Why | None:
    """Why a workload (Kind/namespace/name) or a pod (Pod/namespace/name) waits, or has no more than
    it has; None if the plan doesn't know it."""
    pending = tuple(demand for demand in plan.pending if demand.workload_or_pod == name)
    last = name.rpartition("/")[2]
    named = (one for one in plan.decisions if one.workload.name == last)
    decision = next((one for one in named if str(one.workload) == name), None)
    reservation = next((one for one in plan.reservations if one.demand == name), None)
    if not pending and decision is None:
        return None
    return Why(pending, decision, reservation)
