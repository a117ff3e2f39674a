"""Demand that waits gets its places: free ones, then ones that are being released, then reclaimed
ones. What it takes is gone for whoever comes after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from controlplane.engine.damping import bind_back_off, next_demand_history
from controlplane.engine.decisions import Rejection
from controlplane.engine.jobs import Job
from controlplane.engine.lifecycle import answer
from controlplane.engine.ordering import Demand, DemandKind, units_left
from controlplane.engine.pending import Served, gives, why_pending
from controlplane.engine.placement import Capacity
from controlplane.engine.policy import PolicySet
from controlplane.engine.preemption import reclaim_unit
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.quota_reclaim import reclaim_quota
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.reservations import Reserved
from controlplane.engine.snapshot import DemandHistory
from controlplane.engine.types import Objective, ReclaimPolicy
from controlplane.engine.victims import Donors, Step

#: below so many times its minimum an equal share is too little for everybody to start at once.
#: On half of the public workloads of Pollux 2 is 6 % slower than 4 at load 2.0, and equal at 0.5
CROWDED = 4.0


class Service:
    """Serves the demands of one cycle, in order. One that can't be served holds nothing back: those
    behind it go on, unless its queue reserves for it."""

    def __init__(
        self,
        jobs: Sequence[Job],
        capacity: Capacity,
        quota: QuotaLedger,
        policies: PolicySet,
        history: Mapping[str, DemandHistory],
        now: float,
    ) -> None:
        self.capacity, self.quota, self.policies = capacity, quota, policies
        self._jobs, self._history, self._now = jobs, history, now
        self._donors: dict[tuple[bool, str], Donors] = {}
        self._shares: dict[tuple[int, str], float] = {}
        self._unserved: dict[tuple[object, ...], Served] = {}
        self._hopeless: dict[tuple[object, ...], tuple[Rejection, ...]] = {}
        self._protects = any(queue.protect_nominal for queue in policies.queues.values())
        self.reserved = Reserved()

    def serve(self, demands: Iterable[Demand]) -> list[Served]:
        found = []
        for demand in demands:
            units = units_left(demand)
            if units:
                served = self._one(demand, units)
                self._tell(served)
                found.append(served)
        return found

    # -- one demand --------------------------------------------------------------------------

    def _one(self, demand: Demand, units: int) -> Served:
        served = Served(demand, units)
        served.held_back = self._backs_off(demand)
        if served.held_back is not None:
            return served
        alike = self._unserved.get(demand.likeness)
        if alike is not None:
            served.rejected, served.held_back = alike.rejected, alike.held_back
            served.quota_missing = alike.quota_missing
            return served
        self._serve_one(served)
        if self._found_nothing(served):
            self._unserved[demand.likeness] = served
        return served

    def _found_nothing(self, served: Served) -> bool:
        """Whether one that is alike needn't be tried again in this cycle (kueue 9715)."""
        places = served.units - served.lacking + served.reserved + len(served.steps)
        reserves = reserves_at(served.demand, self.policies) is not None
        return not (places or served.deferred or reserves or served.demand.firm)

    def _serve_one(self, served: Served) -> None:
        demand, units = served.demand, served.units
        if demand.kind is DemandKind.START and not self._within_quota(served):
            return
        if self._is_shared_out(demand):
            served.deferred = True
            return
        served.at_once = self._take(demand, units, later=False)
        served.later = self._take(demand, units - served.at_once, later=True)
        self._reclaim(served, whole=False)
        if served.lacking and demand.reclaims is ReclaimPolicy.PREEMPT_WHOLE:
            self._reclaim(served, whole=True)
        if served.lacking:
            self._reserve(served)
        elif demand.kind is DemandKind.START and demand.job is not None:
            self._use_quota(demand)

    def _is_shared_out(self, demand: Demand) -> bool:
        """Whether a start that would find places gets them by its queue's objective, with all its
        equals: the shortest first, not whoever came first. Where an equal share is well above its
        minimum, nobody has to be chosen."""
        queue = self.policies.queues.get(demand.queue)
        if demand.kind is not DemandKind.START or queue is None:
            return False
        if queue.objective is not Objective.COMPLETION_TIME or demand.firm:
            return False
        pods = demand.pods_per_unit
        if self.capacity.fitting(demand.shape, pods, demand.within) < pods:
            return False
        return self._equal_share(demand) < CROWDED * pods * demand.accelerator[1]

    def _equal_share(self, demand: Demand) -> float:
        """Accelerators for each job of a demand's priority: what they hold and what is free."""
        resource = demand.accelerator[0]
        key = (demand.priority, resource)
        if key not in self._shares:
            equals = [
                job
                for job in self._jobs
                if job.workload.priority == demand.priority and job.accelerators[0] == resource
            ]
            held = sum(
                job.target * job.accelerators[1] for job in equals if not job.workload.suspended
            )
            units = held + self.capacity.free_later(resource)
            self._shares[key] = units / max(1, len(equals))
        return self._shares[key]

    def _backs_off(self, demand: Demand) -> Reason | None:
        history = self._history.get(demand.name)
        if history is None or demand.kind is DemandKind.REPAIR:
            return None
        until = bind_back_off(history, self.policies.cluster, self._now)
        if until is None:
            return None
        current = next_demand_history(history, False, self._now, self.policies.cluster)
        return because(
            ReasonCode.BIND_BACK_OFF,
            timeout_s=self.policies.cluster.bind_timeout_s,
            refusals=current.refusals,
            wait_s=float(until - self._now),
        )

    def _take(self, demand: Demand, units: int, *, later: bool) -> int:
        """How many of `units` found places, which are now taken."""
        take = self.capacity.take_later if later else self.capacity.take_now
        taken = 0
        while taken < units and take(demand.shape, demand.pods_per_unit, demand.within) is not None:
            taken += 1
        return taken

    def _within_quota(self, served: Served) -> bool:
        """Whether the demand's queue may use so much; what it has lent is called back."""
        demand = served.demand
        needs = quota_needs(demand)
        if all(self._missing_quota(demand, name, n) <= 0 for name, n in needs.items()):
            return True
        ratio = self.policies.cluster.max_disruption_ratio
        served.steps.extend(
            reclaim_quota(demand, needs, self._jobs, self.quota, self.capacity, ratio)
        )
        for resource, n in needs.items():
            missing = self._missing_quota(demand, resource, n)
            if missing <= 0:
                continue
            if (self.quota.nominal_left(demand.queue, resource) or 0) >= n:
                return False  # its own quota could be called back: it is places that are missing
            served.quota_missing = missing
            served.held_back = because(
                ReasonCode.WAITS_FOR_QUOTA,
                queue=demand.queue, available=n - missing, accelerators=n, resource=resource,
            )  # fmt: skip
            return False
        return True

    def _missing_quota(self, demand: Demand, resource: str, n: int) -> int:
        available = self.quota.available(demand.queue, resource)
        return 0 if available is None else n - available

    def _use_quota(self, demand: Demand) -> None:
        self.quota.take(demand.queue, quota_needs(demand))

    def _reclaim(self, served: Served, *, whole: bool) -> None:
        """Units that find places by reclaim, and who gives them."""
        demand = served.demand
        if not served.lacking or demand.above_minimum:
            return
        likeness = (*demand.likeness, whole)
        if likeness in self._hopeless:
            served.rejected = self._hopeless[likeness]
            return
        donors = self.donors(demand, whole=whole)
        if demand.reclaims is not ReclaimPolicy.NEVER:
            self._reclaim_units(served, donors)
        served.rejected = donors.rejected(demand, [step.job for step in served.steps])
        if served.lacking:
            self._hopeless[likeness] = served.rejected

    def _reclaim_units(self, served: Served, donors: Donors) -> None:
        """All units at once, so that nothing is given for one that another would have freed; where
        that is too much, as many as can be had, one by one."""
        demand, lacking = served.demand, served.lacking
        if lacking > 1 and demand.within is None:
            all_units = dataclasses.replace(
                demand, units=1, pods_per_unit=lacking * demand.pods_per_unit
            )
            steps = reclaim_unit(all_units, donors, self.capacity)
            if steps:
                self._gave(steps, served, donors)
                served.reclaimed += lacking
                return
        while served.lacking:
            steps = reclaim_unit(demand, donors, self.capacity)
            if not steps:
                return
            self._gave(steps, served, donors)
            served.reclaimed += 1
            served.reclaimed += self._take(demand, served.lacking, later=True)

    def donors(self, demand: Demand, *, whole: bool) -> Donors:
        queue = demand.queue if self._protects else ""
        found = self._donors.get((whole, queue))
        if found is None:
            found = self._donors[whole, queue] = Donors(
                self._jobs, self.policies, self.quota, whole=whole, queue=queue
            )
        return found

    def _gave(self, steps: Iterable[Step], served: Served, donors: Donors) -> None:
        """What steps mean for the jobs that give, for their quotas, and for the other donors."""
        self._unserved.clear()  # more may have come free than was asked for
        for other in self._donors.values():
            if other is not donors:
                other.forget()
        for step in steps:
            job = step.job
            self.quota.give(job.workload.queue, job.amounts(step.before - step.after))
            job.reason = gives(job, served.demand, served.units)
            served.steps.append(step)

    def _reserve(self, served: Served) -> None:
        """Places are kept for a head that has waited for longer than its queue's policy."""
        demand = served.demand
        due = reserves_at(demand, self.policies)
        if due is not None and due <= self._now and not served.reserved:
            pods = demand.pods_per_unit * served.lacking
            served.reserved = self.reserved.make(demand, pods, self.capacity)

    # -- what is said of it ------------------------------------------------------------------

    def _reserved_for(self, served: Served) -> Reason | None:
        """Why it waits, if it would have its places but for a reservation."""
        demand = served.demand
        if not served.lacking or served.reserved or not self.reserved.made:
            return None
        pods = served.lacking * demand.pods_per_unit
        holder = self.reserved.holder(demand.shape, pods, demand.within, self.capacity)
        if holder is None:
            return None
        size = demand.job.minimum if demand.job is not None else pods
        return because(ReasonCode.WAITS_FOR_RESERVATION, next=size, holder=holder)

    def _tell(self, served: Served) -> None:
        """The demand's reason, and what it means for its job and for the next cycle."""
        demand = served.demand
        served.reason = served.held_back or self._reserved_for(served) or why_pending(served)
        job = demand.job
        if job is not None and not served.deferred:
            job.rejected.extend(served.rejected)
            answer(job, demand, at_once=served.at_once == served.units, reason=served.reason)
        previous = self._history.get(demand.name)
        fits = served.reason.code is ReasonCode.FITS
        if previous is not None or fits:
            cluster = self.policies.cluster
            before = previous or served.history
            served.history = next_demand_history(before, fits, self._now, cluster)


def quota_needs(demand: Demand) -> dict[str, int]:
    """resource -> accelerators that a start counts against its queue's quota, beyond what the job
    was granted already."""
    job = demand.job
    assert job is not None
    return job.amounts(job.minimum - (0 if job.workload.suspended else job.target))


def reserves_at(demand: Demand, policies: PolicySet) -> float | None:
    """When places begin to be kept for a demand that is still blocked; None: never."""
    queue = policies.queues.get(demand.queue)
    if queue is None or queue.reserve_after_s is None or demand.job is None:
        return None
    return demand.since + queue.reserve_after_s
