"""Growth into what is left, and between equals towards their shares; and what holds it back.

Groups of one priority in turn, the highest first. Within a group the objective says what each job
should have (`sharing`); those that have less grow into free places, else into places of those that
have more; what nobody can use for his share goes to whoever can use it. A growth that waits for its
time reserves nothing. A job grows only if the whole of its growth is worth its pause.
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.engine.decisions import Rejection
from controlplane.engine.jobs import Job
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.rests import held_back, rests
from controlplane.engine.sharing import Group, Ideals, Sharing, groups
from controlplane.engine.steps import Steps, gain_too_small
from controlplane.engine.transfers import Transfers
from controlplane.engine.types import Objective

#: what equals can help with
PLACES_MISSING = (ReasonCode.NO_ROOM, ReasonCode.DOES_NOT_FIT)


class Growth:
    """One cycle's growth."""

    def __init__(self, steps: Steps, now: float) -> None:
        self.steps, self._now = steps, now
        self._due: list[float] = []
        #: resources that jobs of a higher priority would take more of
        self._hungry: set[str] = set()

    @property
    def wake(self) -> float | None:
        """When the next job that waits for its time may be resized."""
        return min(self._due, default=None)

    def grow(self, jobs: Sequence[Job], waiting: Sequence[Job], coming: Sequence[Job]) -> None:
        """`waiting`: jobs that found no places for their minimum, and take part with it. `coming`:
        those that start just now (`starts_now`)."""
        taking = [job for job in jobs if _takes_part(job)]
        for group in groups([*taking, *waiting, *coming], waiting, coming):
            self._group(group)

    # -- one group ---------------------------------------------------------------------------

    def _group(self, group: Group) -> None:
        steps = self.steps
        room = steps.placeable(group.resource, group.jobs)
        held = sum([group.base(job) * job.accelerators[1] for job in group.jobs])
        sharing = Sharing(group, held + room, steps.policies, steps.quota, steps.memo)
        ideals = sharing.ideals()
        if self._settled(group, ideals):
            return
        frozen: set[int] = set()
        capped: set[int] = set()
        for job in group.jobs:
            if id(job) not in group.waiting | group.coming:
                self._damp(job, ideals[id(job)], frozen, capped)
        ready = [job for job in group.jobs if id(job) not in frozen | capped | group.coming]
        while True:
            shares = sharing.ideals(frozen, capped)
            poor = {id(j) for j in ready if not self._worthwhile(group, j, shares[id(j)])}
            early = {id(j) for j in ready if self._too_early(group, j, shares[id(j)])}
            if not poor | early:
                break
            frozen |= poor
            capped |= early - poor
            ready = [job for job in ready if id(job) not in frozen | capped]
        for job in group.jobs:
            job.share = shares[id(job)]
        self._move(group, ready, frozen)
        if any(self.steps.next_useful(job) is not None for job in ready):
            self._hungry.add(group.resource)
        for job in group.jobs:
            job.reason = job.reason or self._why_no_more(group, job)

    def _settled(self, group: Group, ideals: Ideals) -> bool:
        """The usual case, in short: no room for any step, and nobody is below his share, or could
        get it from his equals."""
        fits: dict[tuple[object, ...], bool] = {}  # jobs are many, and alike
        following: list[int | None] = []
        for job in group.jobs:
            if ideals[id(job)] > group.held(job) and not self._goes_elsewhere(group, job):
                return False
            size = self._next(group, job)
            following.append(size)
            if size is None:
                continue
            more = size - group.base(job)
            alike = (job.shape, more, job.within)
            if alike not in fits:
                fits[alike] = self.steps.fits(job, more)
            if fits[alike]:
                return False
        why: dict[tuple[object, ...], Reason] = {}
        for job, size in zip(group.jobs, following, strict=True):
            job.share = ideals[id(job)]
            waits = id(job) in group.waiting
            if size is not None and not waits:
                self._hungry.add(group.resource)
            if job.reason is None:
                at = (waits, job.shape, job.target, size, job.within)
                if size is None or at not in why:
                    why[at] = self._why_no_more(group, job)
                job.reason = why[at]
        return True

    def _next(self, group: Group, job: Job) -> int | None:
        return job.minimum if id(job) in group.waiting else self.steps.next_useful(job)

    def _why_no_more(self, group: Group, job: Job) -> Reason:
        if id(job) in group.waiting:
            return because(ReasonCode.WAITS_FOR_MINIMUM, min=job.minimum)
        size = job.next_size()
        if size is None:
            return because(ReasonCode.AT_MAXIMUM, to=job.target)
        useful = self.steps.next_useful(job)
        if useful is None:
            return gain_too_small(job, size, self.steps.gain(job, job.target, size))
        return self.steps.no_room(job, useful, job.target)

    def _worthwhile(self, group: Group, job: Job, share: int) -> bool:
        held = group.held(job)
        if not held or share <= held:
            return True
        gain = self.steps.gain(job, held, share)
        least = job.policy.min_gain if job.policy else 0.0
        if gain >= least:
            job.expected_gain = gain
            return True
        job.reason = gain_too_small(job, share, gain)
        return False

    # -- damping -----------------------------------------------------------------------------

    def _damp(self, job: Job, ideal: int, frozen: set[int], capped: set[int]) -> None:
        """Which jobs keep what they have for now, and which may give and not take. Notes since
        when there has been room for the next step, free or with equals above their share."""
        size = self.steps.next_useful(job)
        if size is not None and (ideal >= size or self._may_grow(job, size - job.target)):
            since = job.history.growth_wanted_since
            job.growth_wanted_since = self._now if since is None else since
            rest = held_back(job, self._now)
        else:
            rest = rests(job, job.target, self._now)
        if rest is None:
            return
        reason, until = rest
        if job.growth_wanted_since is not None:
            job.reason = reason
        (capped if reason.code is ReasonCode.STABILIZING else frozen).add(id(job))
        if until is not None and (job.growth_wanted_since is not None or ideal < job.target):
            self._due.append(until)

    def _may_grow(self, job: Job, more: int) -> bool:
        """Whether there is room for more replicas, or will be once what leaves has left."""
        return self.steps.fits(job, more) or self.steps.fits_later(job, more)

    def _too_early(self, group: Group, job: Job, share: int) -> bool:
        """Whether it would take more only now that others rest: its window begins now."""
        if job.growth_wanted_since is not None or share <= group.held(job) or not group.held(job):
            return False
        since = job.history.growth_wanted_since
        job.growth_wanted_since = self._now if since is None else since
        rest = held_back(job, self._now)
        if rest is None:
            return False
        job.reason, until = rest
        if until is not None:
            self._due.append(until)
        return True

    # -- moving ------------------------------------------------------------------------------

    def _move(self, group: Group, ready: list[Job], frozen: set[int]) -> None:
        """Towards the shares: from free places, then from equals; then what is left over."""
        late = group.waiting | group.coming
        givers = [job for job in group.jobs if id(job) not in frozen | late]
        transfers = Transfers(givers, self.steps.policies, self.steps.quota, self._objective(group))
        takers = [job for job in ready if (job.share or 0) > group.held(job)]
        for job in sorted(takers, key=lambda job: _place_in_line(group, job)):
            self._towards_share(group, job, transfers)
        rest = [job for job in ready if id(job) not in late and job.target >= job.workload.granted]
        promised = sum(
            max(0, (job.share or 0) - job.target) * job.accelerators[1]
            for job in group.jobs
            if id(job) in group.coming
        )
        self.steps.hold(group.resource, promised)
        if self.steps.room(group.resource) > 0:
            rest.sort(key=lambda job: _place_in_line(group, job))
        for job in rest:
            self._leftover(job)
        self.steps.hold(group.resource, -promised)

    def _objective(self, group: Group) -> Objective:
        queue = self.steps.policies.queues.get(group.jobs[0].workload.queue)
        return queue.objective if queue else Objective.FAIR_SHARE

    def _towards_share(self, group: Group, job: Job, transfers: Transfers) -> None:
        """As much of the way as there are free places for, else as equals give places for: those
        come free later, and it grows in the next cycle."""
        base, steps = group.base(job), self.steps
        sizes = self._on_the_way(group, job)
        free = steps.most_that_fits(job, base)
        refused: list[Rejection] = []
        for size in reversed(sizes):
            if size > free:
                continue
            why = steps.refused(job, size, base) or steps.place(job, size, base)
            if why is None:
                self._took(group, job, size)
                job.rejected.extend(refused)
                return
            refused = [Rejection(f"{size} replicas", why)]  # the least of those that were too many
        for size in dict.fromkeys((*sizes[-1:], *sizes[:1])):
            why = steps.refused(job, size, base)
            if why is None:
                why = steps.no_room(job, size, base)
                given = None
                if why.code in PLACES_MISSING and not self._goes_elsewhere(group, job):
                    debt = steps.debt(group.resource, (size - base) * job.accelerators[1])
                    given = transfers.for_(job, size, base, steps.capacity, debt)
                if given is not None:
                    job.reason = given
                    return
            job.reason = job.reason or why

    def _goes_elsewhere(self, group: Group, job: Job) -> bool:
        """Whether a higher priority would grow into what is freed for a running job; a start is
        served before any growth."""
        return group.resource in self._hungry and id(job) not in group.waiting

    def _on_the_way(self, group: Group, job: Job) -> list[int]:
        """Sizes between what a job has and its share; of one that waits, its minimum."""
        if id(job) in group.waiting:
            return [job.minimum]
        useful = self.steps.memo.useful(job)
        return [size for size in useful if job.target < size <= (job.share or 0)]

    def _took(self, group: Group, job: Job, size: int) -> None:
        granted = job.workload.granted
        if id(job) not in group.waiting:
            job.reason = because(ReasonCode.GROWS, from_=granted, to=size)
            return
        group.waiting.discard(id(job))
        if job.workload.suspended:
            job.reason = because(ReasonCode.ADMITTED, to=size)
        else:
            job.reason = because(ReasonCode.GROWS_TO_MINIMUM, from_=granted, to=size)

    def _leftover(self, job: Job) -> None:
        """Whole steps into places that nobody has a better claim to."""
        why, size = None, self.steps.next_useful(job)
        while size is not None:
            why = self.steps.refused(job, size, job.target)
            why = why or self.steps.place(job, size, job.target)
            if why is not None:
                break
            job.reason = because(ReasonCode.GROWS, from_=job.workload.granted, to=size)
            size = self.steps.next_useful(job)
        else:
            size = job.next_size()
            if size is not None:
                why = gain_too_small(job, size, self.steps.gain(job, job.target, size))
        if why is None:
            return
        if job.changed:
            job.rejected.append(Rejection(f"{size} replicas", why))
        else:
            job.reason = job.reason or why


def starts_now(job: Job) -> bool:
    """Whether it is being started, in this cycle or by a command under way."""
    if not job.workload.suspended or not job.sizes or job.target < job.minimum:
        return False
    admitted = job.reason is not None and job.reason.code is ReasonCode.ADMITTED
    return admitted or job.in_flight is not None


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


def _place_in_line(group: Group, job: Job) -> tuple[float, int, str]:
    """Whoever is furthest below its share first; then whoever is least above its minimum."""
    held, share = group.held(job), job.share or 0
    filled = held / share if share else 1.0
    return (filled, held - job.minimum, job.name)
