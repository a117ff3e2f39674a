"""Who trains together: the pure state machine behind the authority. No clock, no I/O.

A job's membership goes from one quorum to the next, each with an epoch higher than all before.
A planned change (join, leave) is announced; the members agree on the step at which they stop, by
the reduction itself, and park. An urgent change (a member lost or hung) makes them abort and park
at once. When every member still there has parked, the next quorum is formed with all that are
ready by then, so that changes in flight coalesce. Below the minimum everybody stays parked, state
in memory.

Every method returns the messages to send, as (member id, kind, values).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.protocol import Peer, Phase, Quorum

Message = tuple[str, str, dict[str, Any]]

# What a survivor sees of a lost peer, until its own end is seen: the weakest of causes.
STEP_FAILED = "step_failed"


def name_of(member: str) -> str:
    """The replica's name in a member id, `name#incarnation`."""
    return member.rpartition("#")[0] or member


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `silence`: no word at all (a stopped process or a lost host). `progress`: the
    training thread stands still while it should compute. `reconnect`: how long a restarted
    authority waits for members of the quorum that it was told of."""

    silence: float = 5.0
    progress: float = 120.0
    reconnect: float = 5.0


@dataclass(slots=True)
class Member:
    id: str
    name: str
    order: int
    parked: bool
    live: bool  # holds a state that was trained or copied
    epoch: int  # the epoch in which that state was last in step with its peers; 0: never
    step: int
    checkpoint_step: int
    leaving: bool = False
    address: str = ""
    phase: str = Phase.COMPUTE
    counter: int = -1
    heard_at: float = 0.0
    moved_at: float = 0.0


@dataclass(slots=True)
class Membership:
    """One job. `store_of()` gives the port of the store for group set-up, None if not up."""

    job: str
    incarnation: str
    min_replicas: int
    timing: Timing
    store_of: Callable[[], int | None]
    epoch: int = 0
    quorum: tuple[str, ...] = ()  # ids, in rank order
    members: dict[str, Member] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)  # id -> deadline, after our restart
    last_step: int = 0
    changing: str = ""  # "", "planned" or "urgent"
    cause: str = ""
    finished: bool = False
    _orders: int = 0
    _lost: list[str] = field(default_factory=list)
    _left: list[str] = field(default_factory=list)
    _old_names: dict[str, str] = field(default_factory=dict)
    _told: dict[str, tuple[int, bool]] = field(default_factory=dict)

    # ---- what members say ------------------------------------------------------------------

    def hello(self, member: str, said: dict[str, Any], now: float) -> list[Message]:
        """A replica connected: new, back after a break, or met by a restarted authority."""
        least = said.get("min_replicas")
        if isinstance(least, int):
            self.min_replicas = max(self.min_replicas, least)
        epoch, claimed = said["epoch"], tuple(said.get("quorum", ()))
        welcome = {"incarnation": self.incarnation, "silence": self.timing.silence}
        out: list[Message] = [(member, "welcome", welcome)]
        if epoch > self.epoch and claimed:
            out += self._adopt(epoch, claimed, now)
        self.epoch = max(self.epoch, epoch, said.get("epoch_floor", 0))
        order = self.quorum.index(member) if member in self.missing else len(self.quorum)
        self._orders += 1
        self.members[member] = Member(
            id=member, name=said["name"], order=order * 1_000_000 + self._orders,
            parked=said["parked"], live=said["live"], epoch=said["state_epoch"], step=said["step"],
            checkpoint_step=said.get("checkpoint_step", -1), leaving=said.get("leaving", False),
            address=said.get("address", ""), heard_at=now, moved_at=now,
        )  # fmt: skip
        self.last_step = max(self.last_step, said["step"] if said["live"] else 0)
        back = self.missing.pop(member, None) is not None
        if not said["parked"] and not back:
            # It trains in an epoch that has gone on without it: fenced out, it may come again.
            out.append((member, "change", self._change(epoch, urgent=True, cause="fenced")))
            return out
        if self.finished and not said["live"]:
            return [*out, (member, "finished", {})]
        if self.changing and not said["parked"]:
            urgent = self.changing == "urgent"
            out.append((member, "change", self._change(epoch, urgent=urgent, cause=self.cause)))
        return out + self._plan_change("restarted" if back else "joined") + self._next(now)

    def beat(self, member: str, said: dict[str, Any], now: float) -> list[Message]:
        """Progress of a training thread; answered, so that the member's lease goes on."""
        known = self.members.get(member)
        if known is None:
            return []
        known.heard_at = now
        if (said["counter"], said["phase"]) != (known.counter, known.phase):
            known.counter, known.phase, known.moved_at = said["counter"], said["phase"], now
        if not known.parked:
            self.last_step = max(self.last_step, said.get("step", 0))
        return [(member, "ack", {"n": said["n"]})]

    def park(self, member: str, said: dict[str, Any], now: float) -> list[Message]:
        """A member stopped between steps (or after a failed one) and waits for the next quorum."""
        known = self.members.get(member)
        if known is None:
            return []
        known.parked, known.heard_at, known.moved_at = True, now, now
        known.live, known.epoch, known.step = said["live"], said["epoch"], said["step"]
        known.leaving = known.leaving or said.get("leaving", False)
        known.address = said.get("address", known.address)
        self.last_step = max(self.last_step, known.step if known.live else 0)
        out: list[Message] = []
        if member in self.quorum and said.get("failed"):
            out = self._urgent(STEP_FAILED, 0.0)
        else:
            out = self._plan_change("parked" if member in self.quorum else "joined")
        return out + self._next(now)

    def leave(self, member: str, now: float) -> list[Message]:
        """SIGTERM: the member wants to go, after the step it is in."""
        known = self.members.get(member)
        if known is None:
            return []
        known.leaving = True
        return self._plan_change("leaving") + self._next(now)

    def bye(self, member: str, said: dict[str, Any], now: float) -> list[Message]:
        """A member goes for good: it reached the last step, or its own code failed."""
        known = self.members.get(member)
        if known is None:
            return []
        if said.get("reason") != "finished":
            return self.lost(member, now, cause="replica_failed")
        self.finished = True
        self.last_step = max(self.last_step, said.get("step", 0))
        del self.members[member]
        self.quorum = tuple(each for each in self.quorum if each != member)
        out: list[Message] = []
        if not self.quorum:
            out = [(m.id, "finished", {}) for m in self.members.values() if not m.live]
        return out

    def lost(
        self, member: str, now: float, *, cause: str = "replica_lost", age: float = 0.0
    ) -> list[Message]:
        """A member's connection ended, or it was expired `age` seconds after its last sign."""
        known = self.members.pop(member, None)
        self.missing.pop(member, None)
        self._told.pop(member, None)
        if known is None or member not in self.quorum:
            return self._next(now)
        self._drop(member, known.name)
        return self._urgent(cause, age) + self._next(now)

    def tick(self, now: float) -> list[Message]:
        """Expire who is silent or stands still. The caller closes the lost ones' connections."""
        out: list[Message] = []
        for member in [m for m, deadline in self.missing.items() if now >= deadline]:
            del self.missing[member]
            self._drop(member, name_of(member))
            out += self._urgent("replica_lost", 0.0)
        for member in self.expired(now):
            known = self.members[member]
            silent = now - known.heard_at > self.timing.silence
            since = known.heard_at if silent else known.moved_at
            out += [(member, "close", {})]
            out += self.lost(member, now, cause="replica_hung", age=now - since)
        if self._stuck(now):
            out += self._urgent("reduction_stuck", self.timing.progress)
        return out + self._next(now)

    def expired(self, now: float) -> list[str]:
        """Members without any word, or that compute without progress, for too long."""
        return [
            m.id
            for m in self.members.values()
            if now - m.heard_at > self.timing.silence
            or (
                not m.parked
                and m.phase == Phase.COMPUTE
                and now - m.moved_at > self.timing.progress
            )
        ]

    # ---- how a quorum follows another ------------------------------------------------------

    def _adopt(self, epoch: int, claimed: Iterable[str], now: float) -> list[Message]:
        """After our own restart: take over the quorum that a member says it trains in."""
        self.epoch, self.quorum = epoch, tuple(claimed)
        self.missing = {
            member: now + self.timing.reconnect
            for member in self.quorum
            if member not in self.members
        }
        self._old_names = {member: name_of(member) for member in self.quorum}
        out: list[Message] = []
        for member in self.members.values():
            if member.id in self.quorum:
                member.order = self.quorum.index(member.id)
            elif not member.parked:
                change = self._change(member.epoch, urgent=True, cause="fenced")
                out.append((member.id, "change", change))
        return out

    def _drop(self, member: str, name: str) -> None:
        self.quorum = tuple(each for each in self.quorum if each != member)
        self._lost.append(name)

    def _change(self, epoch: int, *, urgent: bool, cause: str, age: float = 0.0) -> dict[str, Any]:
        return {
            "epoch": epoch, "urgent": urgent, "cause": cause, "age": age, "lost": list(self._lost)
        }  # fmt: skip

    def _running(self) -> list[Member]:
        return [m for m in self.members.values() if m.id in self.quorum and not m.parked]

    def _plan_change(self, cause: str) -> list[Message]:
        if self.changing:
            return []
        self.changing, self.cause = "planned", cause
        change = self._change(self.epoch, urgent=False, cause=cause)
        return [(m.id, "change", change) for m in self._running()]

    def _urgent(self, cause: str, age: float) -> list[Message]:
        if self.changing != "urgent" or self.cause == STEP_FAILED:
            self.changing, self.cause = "urgent", cause
        change = self._change(self.epoch, urgent=True, cause=cause, age=age)
        return [(m.id, "change", change) for m in self._running()]

    def _stuck(self, now: float) -> bool:
        """All of the quorum wait in a reduction that doesn't end."""
        running = self._running()
        return bool(running) and all(
            m.phase == Phase.REDUCE and now - m.moved_at > self.timing.progress for m in running
        )

    def _next(self, now: float) -> list[Message]:
        """Form the next quorum if everybody who has to has parked."""
        if not self.changing or self._running() or self.missing:
            return []
        parked = sorted((m for m in self.members.values() if m.parked), key=lambda m: m.order)
        staying = [m for m in parked if not m.leaving]
        out = self._release([m for m in parked if m.leaving], staying)
        if len(staying) < max(1, self.min_replicas):
            return out + self._wait(staying)
        store = self.store_of()
        if store is None:
            return out
        return out + self._form(staying, store, now)

    def _release(self, leaving: list[Member], staying: list[Member]) -> list[Message]:
        """Let the leaving go. The last one that holds the newest state writes a checkpoint."""
        newest = max((m.epoch, m.step) for m in [*leaving, *staying]) if leaving else (0, 0)
        kept = any(m.live and (m.epoch, m.step) == newest for m in staying)
        writer = None
        if not kept:
            holders = [m for m in leaving if m.live and (m.epoch, m.step) == newest]
            writer = holders[0].id if holders else None
        for member in leaving:
            self._left.append(member.name)
            self._told.pop(member.id, None)
            del self.members[member.id]
            self.quorum = tuple(each for each in self.quorum if each != member.id)
        return [(m.id, "released", {"checkpoint": m.id == writer}) for m in leaving]

    def _wait(self, staying: list[Member]) -> list[Message]:
        out: list[Message] = []
        for member in staying:
            word = (len(staying), member is staying[0])
            if self._told.get(member.id) != word:
                self._told[member.id] = word
                values = {"have": len(staying), "need": self.min_replicas, "reporter": word[1],
                          "epoch": self.epoch, "members": [m.name for m in staying]}  # fmt: skip
                out.append((member.id, "waiting", values))
        return out

    def _form(self, staying: list[Member], store: int, now: float) -> list[Message]:
        live = [m for m in staying if m.live]
        newest = max(((m.epoch, m.step) for m in live), default=None)
        if newest is not None:
            source = next(m for m in live if (m.epoch, m.step) == newest)
        else:
            source = max(staying, key=lambda m: (m.checkpoint_step, -m.order))
        self.epoch += 1
        joined = tuple(m.name for m in staying if m.id not in self._old_names)
        peers = tuple(
            Peer(
                id=m.id, name=m.name, step=m.step if m.live else 0,
                copies=m is not source and not (m.live and (m.epoch, m.step) == newest),
                address=m.address,
            )
            for m in staying
        )  # fmt: skip
        quorum = Quorum(
            epoch=self.epoch, members=peers, source=source.id,
            origin="peer" if newest is not None else "start", store_port=store,
            prefix=f"{self.job}/{self.incarnation}/{self.epoch}", last_step=self.last_step,
            cause=self.cause, lost=tuple(self._lost), left=tuple(self._left), joined=joined,
        )  # fmt: skip
        self.quorum = tuple(m.id for m in staying)
        self._old_names = {m.id: m.name for m in staying}
        self._lost, self._left, self._told = [], [], {}
        self.changing, self.cause, self.finished = "", "", False
        for member in staying:
            member.parked, member.phase, member.moved_at = False, Phase.PAUSED, now
            # Until it says otherwise its state is the old one, so `epoch` and `step` stay.
        return [(m.id, "quorum", quorum.to_dict()) for m in staying]
