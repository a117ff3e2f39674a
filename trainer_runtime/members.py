"""What the authority knows of a replica: its ranks' progress, its state's age, what it wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.protocol import Phase

NEW_RANK = 1 << 30  # of who isn't in the quorum: its place is behind those that are


def name_of(member: str) -> str:
    """The replica's name in a member id, `name#incarnation`."""
    return member.rpartition("#")[0] or member


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `silence`: no word at all (a stopped process or a lost host). `progress`: the
    training thread stands still while it should compute. `reconnect`: how long a restarted
    authority waits for members of the quorum that it was told of. `forget`: how long a finished or
    left job is remembered, so that a late replica learns that it has finished; one whose replicas
    were lost is remembered `KEEP_LOST` times as long."""

    silence: float = 5.0
    progress: float = 120.0
    reconnect: float = 5.0
    forget: float = 60.0


KEEP_LOST = 60


@dataclass(slots=True)
class Lane:
    """One rank of a replica, with a connection of its own; most replicas have one."""

    parked: bool
    heard_at: float
    moved_at: float
    phase: str = Phase.COMPUTE
    counter: int = -1

    def beat(self, counter: int, phase: str, now: float) -> None:
        self.heard_at = now
        if (counter, phase) != (self.counter, self.phase):
            self.counter, self.phase, self.moved_at = counter, phase, now

    def stopped(self, now: float) -> None:
        self.parked, self.heard_at, self.moved_at = True, now, now

    def given_up_since(self, now: float, timing: Timing) -> float | None:
        """Since when it is silent or stands still while it should compute, if for too long."""
        if now - self.heard_at > timing.silence:
            return self.heard_at
        computing = not self.parked and self.phase == Phase.COMPUTE
        return self.moved_at if computing and now - self.moved_at > timing.progress else None


@dataclass(slots=True)
class Member:
    """A replica, all of whose lanes are here. State and step are lane 0's."""

    id: str
    name: str
    order: tuple[int, int]  # rank in the quorum, else NEW_RANK; then the order of arrival
    lanes: list[Lane]
    live: bool  # holds a state that was trained or copied
    epoch: int  # the epoch in which that state was last in step with its peers; 0: never
    step: int
    checkpoint_step: int
    voted: int  # the last epoch that it took up
    least: int = 1  # how many replicas it wants at least
    leaving: bool = False
    address: str = ""

    @property
    def parked(self) -> bool:
        return all(lane.parked for lane in self.lanes)

    def begin(self, epoch: int, rank: int, now: float) -> None:
        """It was told to train in this epoch. Until it says otherwise its state is the old one."""
        self.order, self.voted = (rank, 0), max(self.voted, epoch)
        for lane in self.lanes:
            lane.parked, lane.phase, lane.moved_at = False, Phase.PAUSED, now

    def reducing_since(self) -> float | None:
        """Since when every lane that runs waits in a reduction; None if one doesn't."""
        running = [lane for lane in self.lanes if not lane.parked]
        if not running or any(lane.phase != Phase.REDUCE for lane in running):
            return None
        return max(lane.moved_at for lane in running)


@dataclass(slots=True)
class Arrival:
    """Hellos of a replica's lanes, until all of them are here."""

    lanes: int
    said: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.said) == self.lanes

    def in_order(self) -> list[dict[str, Any]]:
        return [self.said[lane] for lane in range(self.lanes)]


def admitted(
    member: str, said: Sequence[dict[str, Any]], order: tuple[int, int], now: float
) -> Member:
    """The member of whose lanes these are the hellos, in order."""
    first = said[0]
    return Member(
        id=member, name=first["name"], order=order,
        lanes=[Lane(each["parked"], now, now) for each in said], live=first["live"],
        epoch=first["state_epoch"], step=first["step"],
        checkpoint_step=first.get("checkpoint_step", -1),
        voted=max(each["epoch"] for each in said), least=first.get("min_replicas", 1),
        leaving=any(each.get("leaving", False) for each in said),
        address=first.get("address", ""),
    )  # fmt: skip
