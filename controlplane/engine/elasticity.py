"""Growth into what is left, and between equals towards their shares; and what holds it back.

Groups of one priority in turn, the highest first. Within a group the objective says what each job
should have (`sharing`); those that have less grow into free places, else into places of those that
have more; what nobody can use for his share goes to whoever can use it. A growth that waits for its
time reserves nothing. A job grows only if the whole of its growth is worth its pause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controlplane.engine.damping import back_off, budget_free_at
from controlplane.engine.decisions import Rejection
from controlplane.engine.forecasts import kept_free
from controlplane.engine.jobs import Job
from controlplane.engine.placement import Capacity
from controlplane.engine.policy import PolicySet
from controlplane.engine.quota import QuotaLedger
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.sharing import Group, Ideals, Memo, Sharing, groups
from controlplane.engine.transfers import Transfers
from controlplane.engine.types import Objective

#: a growth must pay for its pause within this time, or within the cooldown if that is longer
PAYBACK_S = 600.0
HOUR_S = 3600.0
#: more than any cluster holds
MOST_PODS = 1 << 40


class Growth:
    """One cycle's growth. `wake`: when the next job that waits for its time may grow."""

    def __init__(
        self,
        capacity: Capacity,
        quota: QuotaLedger,
        policies: PolicySet,
        inflow: Mapping[str, tuple[float, ...]],
        now: float,
        memo: Memo,
    ) -> None:
        self.capacity, self.quota, self.policies = capacity, quota, policies
        self._inflow, self._now = inflow, now
        self.memo = memo
        self._due: list[float] = []
        #: accelerators that may still be given out, by resource, and what the rest is kept for
        self._room: dict[str, int] = {}
        self._kept: dict[str, tuple[int, str]] = {}

    @property
    def wake(self) -> float | None:
        return min(self._due, default=None)

    def grow(self, jobs: Sequence[Job], waiting: Sequence[Job]) -> None:
        """`waiting`: jobs that found no places for their minimum, and take part with it."""
        taking = [job for job in jobs if _takes_part(job)]
        for group in groups([*taking, *waiting], waiting):
            self._group(group)

    # -- one group ---------------------------------------------------------------------------

    def _group(self, group: Group) -> None:
        room = min(self._room_for(group.resource), self._placeable(group))
        held = sum(group.held(job) * job.accelerators[1] for job in group.jobs)
        sharing = Sharing(group, held + room, self.policies, self.quota, self.memo)
        ideals = sharing.ideals()
        if self._settled(group, ideals, room):
            return
        frozen: set[int] = set()
        capped: set[int] = set()
        for job in group.jobs:
            if id(job) not in group.waiting:
                self._note_room(job, ideals[id(job)], room)
                self._damp(job, frozen, capped)
        ready = [job for job in group.jobs if id(job) not in frozen | capped]
        while True:
            shares = sharing.ideals(frozen, capped)
            poor = [job for job in ready if not self._worthwhile(group, job, shares[id(job)])]
            if not poor:
                break
            frozen |= {id(job) for job in poor}
            ready = [job for job in ready if id(job) not in frozen]
        for job in group.jobs:
            job.share = shares[id(job)]
        self._move(group, ready, frozen)

    def _settled(self, group: Group, ideals: Ideals, room: int) -> bool:
        """The usual case, in short: no room for any step, and nobody is below his share. Notes why
        nobody grows."""
        for job in group.jobs:
            size = _next(group, job)
            if ideals[id(job)] > group.held(job) or (
                size is not None and self._fits(job, size - group.held(job), room)
            ):
                return False
        for job in group.jobs:
            job.share = ideals[id(job)]
            if id(job) in group.waiting:
                continue
            size = job.next_size()
            if size is None:
                job.reason = because(ReasonCode.AT_MAXIMUM, to=job.target)
            else:
                job.reason = self._no_room(job, size)
        return True

    def _move(self, group: Group, ready: list[Job], frozen: set[int]) -> None:
        """Towards the shares: from free places, then from equals; then what is left over."""
        givers = [job for job in group.jobs if id(job) not in frozen | group.waiting]
        transfers = Transfers(givers, self.policies, self.quota, self._objective(group))
        takers = [job for job in ready if (job.share or 0) > group.held(job)]
        for job in sorted(takers, key=lambda job: _place_in_line(group, job)):
            self._towards_share(group, job, transfers)
        rest = [
            job
            for job in ready
            if id(job) not in group.waiting and job.target >= job.workload.granted
        ]
        if self._room_for(group.resource):
            rest.sort(key=lambda job: _place_in_line(group, job))
        for job in rest:
            self._leftover(job)

    def _objective(self, group: Group) -> Objective:
        queue = self.policies.queues.get(group.jobs[0].workload.queue)
        return queue.objective if queue else Objective.FAIR_SHARE

    def _towards_share(self, group: Group, job: Job, transfers: Transfers) -> None:
        share = job.share or 0
        while (size := _next(group, job)) is not None and size <= share:
            if self._take_step(group, job, size, quiet=True) is None:
                continue
            given = transfers.for_(job, size, group.held(job), self.capacity)
            if given is None:
                break
            job.reason = given
            break  # its places come free later: it grows in the next cycle
        if job.target > job.workload.granted and job.reason is None:
            job.reason = _grows(job)

    def _leftover(self, job: Job) -> None:
        """Whole steps into places that nobody has a better claim to."""
        while (size := job.next_size()) is not None:
            why = self._take_step(None, job, size, quiet=False)
            if why is None:
                continue
            if job.changed:
                job.rejected.append(Rejection(f"{size} replicas", why))
            elif job.reason is None:
                job.reason = why
            break
        if job.changed and job.target > job.workload.granted:
            job.reason = _grows(job)
        elif job.reason is None:
            job.reason = because(ReasonCode.AT_MAXIMUM, to=job.target)

    def _take_step(self, group: Group | None, job: Job, size: int, *, quiet: bool) -> Reason | None:
        """Takes the places, and the quota, of one step; why not, otherwise."""
        held = group.held(job) if group else job.target
        resource, each = job.accelerators
        needs = (size - held) * each
        if needs > self._room_for(resource):
            return self._no_room(job, size)
        curve = self.memo.curve(job)
        if held and curve.rate(size) <= curve.rate(held):
            return _gain_too_small(job, size, self._gain(job, held, size))
        available = self.quota.available(job.workload.queue, resource)
        if available is not None and available < needs:
            return because(
                ReasonCode.QUOTA_EXHAUSTED,
                next=size, queue=job.workload.queue, available=available, accelerators=needs,
                resource=resource,
            )  # fmt: skip
        pods = (size - held) * job.pods_per_replica
        if self.capacity.take_now(job.shape, pods, job.within) is None:
            return _does_not_fit(job, size, pods, self.capacity)
        self.quota.take(job.workload.queue, {resource: needs})
        self._room[resource] -= needs
        job.target = size
        if group is not None and id(job) in group.waiting:
            group.waiting.discard(id(job))
            starts = job.workload.suspended
            job.reason = (
                because(ReasonCode.ADMITTED, to=size)
                if starts
                else because(ReasonCode.GROWS_TO_MINIMUM, from_=job.workload.granted, to=size)
            )
        return None

    # -- room --------------------------------------------------------------------------------

    def _room_for(self, resource: str) -> int:
        """Accelerators that are free, less what is kept for spares and inflow."""
        found = self._room.get(resource)
        if found is None:
            kept = kept_free(self.policies.cluster, self._inflow, resource, self._now)
            self._kept[resource] = kept
            found = self._room[resource] = max(0, self.capacity.free(resource) - kept[0])
        return found

    def _placeable(self, group: Group) -> int:
        """Accelerators that pods of the group's shapes find room for: fragments are no room."""
        shapes = {job.shape for job in group.jobs}
        return max(
            self.capacity.fitting(shape, MOST_PODS) * sum(n for _, n in shape.accelerators)
            for shape in shapes
        )

    def _no_room(self, job: Job, size: int) -> Reason:
        resource = job.accelerators[0]
        kept, purpose = self._kept[resource]
        pods = (size - job.target) * job.pods_per_replica
        if kept and self.capacity.fitting(job.shape, pods, job.within) >= pods:
            return because(
                ReasonCode.CAPACITY_KEPT,
                next=size, accelerators=kept, resource=resource, purpose=purpose,
            )  # fmt: skip
        return _does_not_fit(job, size, pods, self.capacity)

    def _fits(self, job: Job, replicas: int, room: int) -> bool:
        """Whether so many more replicas find places, and may have them."""
        pods = replicas * job.pods_per_replica
        return replicas * job.accelerators[1] <= room and (
            self.capacity.fitting(job.shape, pods, job.within) >= pods
        )

    def _note_room(self, job: Job, ideal: int, room: int) -> None:
        """Since when there has been room for the next step, free or with equals above their
        share."""
        size = job.next_size()
        if size is None:
            job.reason = because(ReasonCode.AT_MAXIMUM, to=job.target)
            return
        if ideal >= size or self._fits(job, size - job.target, room):
            since = job.history.growth_wanted_since
            job.growth_wanted_since = self._now if since is None else since

    # -- damping -----------------------------------------------------------------------------

    def _damp(self, job: Job, frozen: set[int], capped: set[int]) -> None:
        """Which jobs keep what they have for now, and which may give and not take."""
        if job.growth_wanted_since is None and job.next_size() is not None:
            reason, until = self._resting(job)
            if reason is not None:
                frozen.add(id(job))
            return
        if job.next_size() is None:
            if self._resting(job)[0] is not None:
                frozen.add(id(job))
            return
        reason, until = held_back(job, self._now)
        if reason is None:
            return
        job.reason = reason
        (capped if reason.code is ReasonCode.STABILIZING else frozen).add(id(job))
        if until is not None:
            self._due.append(until)

    def _resting(self, job: Job) -> tuple[Reason | None, float | None]:
        """Damped as a giver: a job that was just resized keeps its size for its cooldown."""
        return _rests(job, job.target, self._now)

    def _worthwhile(self, group: Group, job: Job, share: int) -> bool:
        held = group.held(job)
        if not held or share <= held:
            return True
        gain = self._gain(job, held, share)
        least = job.policy.min_gain if job.policy else 0.0
        if gain >= least:
            job.expected_gain = gain
            return True
        job.reason = _gain_too_small(job, share, gain)
        return False

    def _gain(self, job: Job, before: int, size: int) -> float:
        """Relative gain in samples from growing to `size`, its measured pause paid for: over the
        time until it may be resized again, at least `PAYBACK_S`, at most what it has left."""
        curve = self.memo.curve(job)
        pause = (job.report.resize_cost_s if job.report else None) or 0.0
        horizon = max(PAYBACK_S, job.policy.cooldown if job.policy else 0.0)
        useful = max(0.0, 1 - pause / horizon)
        return curve.rate(size) / curve.rate(before) * useful - 1


def _takes_part(job: Job) -> bool:
    """Whether its size may change for the sake of growth in this cycle; notes why not."""
    if job.fixed is not None or job.changed or job.workload.suspended or not job.sizes:
        return False
    if job.target < job.minimum:  # waits for all of its minimum (ordering.starts)
        return False
    if job.short_since is not None:
        job.reason = job.reason or because(
            ReasonCode.REPAIRING, running=job.running(), to=job.target
        )
        return False
    return True


def held_back(job: Job, now: float) -> tuple[Reason | None, float | None]:
    """Why a job that could grow doesn't yet, and when that ends by itself; (None, None): it may."""
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
    return _rests(job, size, now)


def _rests(job: Job, size: int, now: float) -> tuple[Reason | None, float | None]:
    """Why a job isn't resized for anything but a reclaim yet, and until when."""
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
    recent = [at for at in history.resizes if now - at < HOUR_S]
    budget = policy.restart_budget
    if budget is not None and len(recent) >= budget:
        reason = because(ReasonCode.BUDGET_SPENT, next=size, resizes=len(recent), budget=budget)
        return reason, budget_free_at(history.resizes, budget, now)
    return None, None


def _next(group: Group, job: Job) -> int | None:
    return job.minimum if id(job) in group.waiting else job.next_size()


def _grows(job: Job) -> Reason:
    return because(ReasonCode.GROWS, from_=job.workload.granted, to=job.target)


def _gain_too_small(job: Job, size: int, gain: float) -> Reason:
    return because(
        ReasonCode.GAIN_TOO_SMALL,
        next=size,
        gain_percent=gain * 100,
        min_gain_percent=(job.policy.min_gain if job.policy else 0.0) * 100,
    )


def _does_not_fit(job: Job, size: int, pods: int, capacity: Capacity) -> Reason:
    missing = pods - capacity.fitting(job.shape, pods, job.within)
    if job.changed:
        return because(ReasonCode.DOES_NOT_FIT, to=size, missing=missing)
    resource, n = (job.shape.accelerators or (("accelerators", 0),))[0]
    return because(
        ReasonCode.NO_ROOM,
        to=job.target, next=size, missing=missing, pods=pods, accelerators=n, resource=resource,
    )  # fmt: skip


def _place_in_line(group: Group, job: Job) -> tuple[float, int, str]:
    """Whoever is furthest below its share first; then whoever is least above its minimum."""
    held, share = group.held(job), job.share or 0
    filled = held / share if share else 1.0
    return (filled, held - job.minimum, job.name)
