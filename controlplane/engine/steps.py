"""One step of a growth: whether it is worth it, allowed and placeable, and taking what it needs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from controlplane.engine.forecasts import kept_free
from controlplane.engine.jobs import Job
from controlplane.engine.placement import Capacity
from controlplane.engine.policy import PolicySet
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.reservations import Reserved
from controlplane.engine.sharing import Memo

#: a growth must pay for its pause within this time, or within the cooldown if that is longer
PAYBACK_S = 600.0


class Steps:
    """Steps of one cycle. `room`: accelerators of a resource that may still be given out."""

    def __init__(
        self,
        capacity: Capacity,
        quota: QuotaLedger,
        policies: PolicySet,
        inflow: Mapping[str, tuple[float, ...]],
        reserved: Reserved,
        now: float,
        memo: Memo,
    ) -> None:
        self.capacity, self.quota, self.policies, self.memo = capacity, quota, policies, memo
        self._inflow, self._reserved, self._now = inflow, reserved, now
        self._room: dict[str, int] = {}
        self._kept: dict[str, tuple[int, str]] = {}
        #: what of that isn't there: what comes free goes there first
        self._short: dict[str, int] = {}

    # -- taking a step -----------------------------------------------------------------------

    def refused(self, job: Job, size: int, base: int) -> Reason | None:
        """Why a step from `base` to `size` isn't wanted, whatever places there are: no gain, no
        quota."""
        if base >= job.minimum and size not in self.memo.useful(job):
            return gain_too_small(job, size, self.gain(job, base, size))
        for resource, each in job.replicas.amounts:
            available = self.quota.available(job.workload.queue, resource)
            needs = (size - base) * each
            if available is not None and available < needs:
                return because(
                    ReasonCode.QUOTA_EXHAUSTED,
                    next=size, queue=job.workload.queue, available=available,
                    accelerators=needs, resource=resource,
                )  # fmt: skip
        return None

    def place(self, job: Job, size: int, base: int) -> Reason | None:
        """Takes the places, and the quota, of a step; why not, otherwise."""
        resource, each = job.accelerators
        if (size - base) * each > self.room(resource):
            return self.no_room(job, size, base)
        pods = (size - base) * job.pods_per_replica
        if self.capacity.take_now(job.shape, pods, job.within) is None:
            return self.no_room(job, size, base)
        self.quota.take(job.workload.queue, job.amounts(size - base))
        self._room[resource] -= (size - base) * each
        job.target = size
        return None

    def next_useful(self, job: Job) -> int | None:
        """The next valid size above the target that brings something."""
        useful = self.memo.useful(job)
        at = bisect_right(useful, job.target)
        return useful[at] if at < len(useful) else None

    def gain(self, job: Job, before: int, size: int) -> float:
        """Relative gain in samples from growing to `size`, its measured pause paid for: over the
        time until it may be resized again, and at least `PAYBACK_S`."""
        curve = self.memo.curve(job)
        pause = (job.report.resize_cost_s if job.report else None) or 0.0
        horizon = max(PAYBACK_S, job.policy.cooldown if job.policy else 0.0)
        useful = max(0.0, 1 - pause / horizon)
        return curve.rate(size) / curve.rate(before) * useful - 1

    # -- room --------------------------------------------------------------------------------

    def room(self, resource: str) -> int:
        """Accelerators that are free, less what is kept for spares and inflow."""
        found = self._room.get(resource)
        if found is None:
            kept = kept_free(self.policies.cluster, self._inflow, resource, self._now)
            self._kept[resource] = kept
            free = self.capacity.free(resource)
            self._short[resource] = max(0, kept[0] - free)
            found = self._room[resource] = max(0, free - kept[0])
        return found

    def placeable(self, resource: str, jobs: Iterable[Job]) -> int:
        """Room that pods of the jobs' shapes can use, now or once what leaves has left: what an
        equal gives is shared out before it is there. Fragments are no room."""
        kept, _ = kept_free(self.policies.cluster, self._inflow, resource, self._now)
        most = max(
            int(self.capacity.fits(shape, later=True).sum()) * sum(n for _, n in shape.accelerators)
            for shape in {job.shape for job in jobs}
        )
        return max(0, min(most, self.capacity.free_later(resource) - kept))

    def fits(self, job: Job, replicas: int) -> bool:
        """Whether so many more replicas find places, and may have them."""
        resource, each = job.accelerators
        pods = replicas * job.pods_per_replica
        return replicas * each <= self.room(resource) and (
            self.capacity.fitting(job.shape, pods, job.within) >= pods
        )

    def debt(self, resource: str, needs: int) -> int:
        """Accelerators that have to come free for `needs` of them to be given out."""
        return max(0, needs - self.room(resource)) + self._short[resource]

    def most_that_fits(self, job: Job, base: int) -> int:
        """Replicas that the job could have with what is free now."""
        resource, each = job.accelerators
        more = self.room(resource) // max(1, each)
        pods = self.capacity.fitting(job.shape, more * job.pods_per_replica, job.within)
        return base + min(more, pods // job.pods_per_replica)

    def fits_later(self, job: Job, replicas: int) -> bool:
        """Whether they will find places once what leaves has left."""
        free = int(self.capacity.fits(job.shape, later=True).sum())
        return free >= replicas * job.pods_per_replica

    def hold(self, resource: str, accelerators: int) -> None:
        """What is held isn't given out for now; a negative number gives it free again."""
        self._room[resource] = self.room(resource) - accelerators

    def no_room(self, job: Job, size: int, base: int) -> Reason:
        """Why a step finds no places: they are kept, reserved, or not there."""
        resource, _ = job.accelerators
        pods = (size - base) * job.pods_per_replica
        found = self.capacity.fitting(job.shape, pods, job.within)
        if found >= pods or self._short[resource]:
            kept, purpose = self._kept[resource]
            return because(
                ReasonCode.CAPACITY_KEPT,
                next=size, accelerators=kept, resource=resource, purpose=purpose,
            )  # fmt: skip
        holder = self._reserved.holder(job.shape, pods, job.within, self.capacity)
        if holder is not None:
            return because(ReasonCode.WAITS_FOR_RESERVATION, next=size, holder=holder)
        if self.fits_later(job, size - base):
            return because(ReasonCode.WAITS_FOR_RELEASE, pods=pods)
        if job.changed:
            return because(ReasonCode.DOES_NOT_FIT, to=size, missing=pods - found)
        name, n = (job.shape.accelerators or (("accelerators", 0),))[0]
        return because(
            ReasonCode.NO_ROOM,
            to=job.target, next=size, missing=pods - found, pods=pods, accelerators=n,
            resource=name,
        )  # fmt: skip


def gain_too_small(job: Job, size: int, gain: float) -> Reason:
    return because(
        ReasonCode.GAIN_TOO_SMALL,
        next=size,
        gain_percent=gain * 100,
        min_gain_percent=(job.policy.min_gain if job.policy else 0.0) * 100,
    )
