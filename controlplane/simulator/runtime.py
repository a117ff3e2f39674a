"""A training job as it goes: its progress, its pauses and what is remembered of it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from controlplane.engine.snapshot import History, InFlight, Move, Pod
from controlplane.engine.types import WorkloadKey
from controlplane.simulator.model import JobModel, Placement
from controlplane.simulator.spec import HOUR_S, STEPS, JobSpec

#: rounding of progress, as a part of the whole work
ROUNDING = 1e-12
#: a list of past resizes longer than this says nothing more about the last hour
MOST_MOVES = 256


@dataclass(slots=True, eq=False)
class SimJob:
    """`granted`: replicas by the last command; 0 while suspended. `running`: uids of the pods of
    replicas that are ready as a whole; `placement` is theirs. It makes progress from
    `paused_until` on. `held`: accelerators of its bound pods; `attained`: accelerator-seconds of
    them so far. `version`: events of older versions are void."""

    spec: JobSpec
    key: WorkloadKey
    model: JobModel
    work: float
    arrival: int
    granted: int = 0
    progress: float = 0.0
    attained: float = 0.0
    held: int = 0
    per_replica: int = field(init=False)
    placement: Placement = ()
    running: frozenset[str] = frozenset()
    paused_until: float = 0.0
    updated_at: float = 0.0
    finished_at: float | None = None
    first_started_at: float | None = None
    version: int = 0
    history: History = field(default_factory=History)
    flight: InFlight | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    observed: dict[int, float] = field(default_factory=dict)
    resizes: int = 0
    flaps: int = 0
    paused_s: float = 0.0
    paused_accelerator_s: float = 0.0
    idle_held_s: float = 0.0
    queued_s: float = 0.0
    faults: int = 0
    suspensions: int = 0

    def __post_init__(self) -> None:
        self.per_replica = accelerators_per_replica(self.spec)

    @property
    def replicas(self) -> int:
        return sum(self.placement)

    @property
    def suspended(self) -> bool:
        return self.granted == 0

    @property
    def samples_per_step(self) -> float:
        return self.work / STEPS

    # -- time ------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Account for the time since the last change, in which nothing but time has changed."""
        took = now - self.updated_at
        if took <= 0:
            return
        self.attained += self.held * took
        if not self.placement:
            self.idle_held_s += self.held * took
            if self.finished_at is None:
                self.queued_s += took
        else:
            paused = min(took, max(0.0, self.paused_until - self.updated_at))
            self.paused_s += paused
            self.paused_accelerator_s += paused * self.held
            self.idle_held_s += max(0, self.held - self.replicas * self.per_replica) * (
                took - paused
            )
            self._progress(took - paused)
        self.updated_at = now

    def _progress(self, seconds: float) -> None:
        while seconds > 0 and self.progress < self.work:
            rate = self.model.rate(self.placement, self.progress)
            if rate <= 0:
                return
            bound = min(self.work, self.model.boundary(self.progress))
            needed = (bound - self.progress) / rate
            if needed > seconds:
                self.progress += rate * seconds
                return
            self.progress = max(bound, math.nextafter(self.progress, math.inf))
            seconds -= needed

    def finishes_at(self, now: float) -> float:
        """When it will have done its work if nothing changes; infinite while it stands."""
        if not self.placement:
            return math.inf
        at, progress = max(now, self.paused_until), self.progress
        while self.work - progress > ROUNDING * self.work:
            rate = self.model.rate(self.placement, progress)
            if rate <= 0:
                return math.inf
            bound = min(self.work, self.model.boundary(progress))
            at += (bound - progress) / rate
            progress = max(bound, math.nextafter(progress, math.inf))
        return at

    def done(self) -> bool:
        return self.work - self.progress <= 1e-9 * self.work

    def lose(self, seconds: float) -> None:
        """A fault undoes the progress of so many seconds at the present rate."""
        rate = self.model.rate(self.placement, self.progress)
        self.progress = max(0.0, self.progress - rate * seconds)

    @property
    def started(self) -> bool:
        return self.first_started_at is not None

    # -- what is remembered ------------------------------------------------------------------------

    def observe(self, now: float) -> None:
        """Keep the throughput of the present size, as the trainer measures it."""
        if self.placement and now > self.paused_until:
            self.observed[self.replicas] = self.model.rate(self.placement, self.progress)

    def note_resize(
        self, now: float, before: int, after: int, cooldown: float, *, forced: bool
    ) -> None:
        """A command was carried out. A resize undone within its cooldown is a flap, unless demand
        of higher priority `forced` it."""
        old = self.history
        if old.moves and now - old.moves[-1].at < cooldown and not forced:
            self.flaps += _undoes(old.moves[-1], before, after)
        recent = [move for move in old.moves if now - move.at < HOUR_S][-MOST_MOVES:]
        moves = (*recent, Move(now, before, after))
        again = before == 0 and self.first_started_at is not None
        self.history = History(
            last_resize_at=now,
            last_restart_at=now if again else old.last_restart_at,
            resizes=tuple(move.at for move in moves),
            moves=moves,
        )
        self.resizes += before != 0 and after != 0
        self.suspensions += after == 0

    def forget_failures(self) -> None:
        """A command has succeeded."""
        if self.history.failed_resizes:
            self.history = replace(self.history, failed_resizes=())

    def where(self, running: frozenset[str], nodes: Counter[str]) -> None:
        """Take note of which pods run (by uid), and how many replicas on each node."""
        self.running = running
        self.placement = tuple(sorted(nodes.values(), reverse=True))


def accelerators_per_replica(spec: JobSpec) -> int:
    """Accelerators of all the pods of one replica."""
    a_pod = sum(n for name, n in spec.requests.items() if name not in ("cpu", "memory"))
    return spec.pods_per_replica * a_pod


def _undoes(last: Move, before: int, after: int) -> bool:
    """Whether a move takes all of the last one back."""
    if last.after > last.before:
        return after < before and after <= last.before
    return after > before and after >= last.before
