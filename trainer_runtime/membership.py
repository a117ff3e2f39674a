"""Who trains together: the pure state machine behind the authority. No clock, no I/O.

A job's membership goes from one quorum to the next, each with an epoch higher than all before.
A planned change (join, leave) is announced; the members agree on the step at which they stop, by
the reduction itself, and park. An urgent change (a member lost or hung) makes them abort and park
at once. When every member still there has parked, the next quorum is formed with all that are
ready by then, so that changes in flight coalesce. Below the minimum everybody stays parked, state
in memory. Where several authorities could form quorums, succession.py says whether one may.

Every method returns the messages to send, as (member id, kind, values). They go to all lanes of the
member, or to that named by `lane` in the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.members import KEEP_LOST, NEW_RANK, Arrival, Member, Timing, admitted, name_of
from trainer_runtime.protocol import Peer, ProtocolError, Quorum
from trainer_runtime.succession import Config, History, Lack, Succession

Message = tuple[str, str, dict[str, Any]]

# What a survivor sees of a lost peer, until its own end is seen: the weakest of causes.
STEP_FAILED = "step_failed"


@dataclass(slots=True)
class Membership:
    """One job. `store_of()` gives the port of the store for group set-up, None if not up.
    `succession` only for one of several candidate authorities."""

    job: str
    incarnation: str
    usual_min: int  # the authority's own; members may want more
    timing: Timing
    store_of: Callable[[], int | None]
    succession: Succession | None = None
    term: int = 1
    epoch: int = 0
    key: str = ""  # the prefix of `quorum`, which tells it from others of its epoch
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
    _told: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    _arriving: dict[str, Arrival] = field(default_factory=dict)
    _leads: bool | None = None  # None: to be worked out again
    _empty_since: float | None = None
    _all_left: bool = True  # nobody went without a word, so there is nothing to come back to

    @property
    def min_replicas(self) -> int:
        """The most that a present member wants."""
        return max([self.usual_min, *(m.least for m in self.members.values())])

    def forgettable(self, now: float) -> bool:
        """Whether nobody has been here for so long that the job can be dropped."""
        if self.members or self.missing or self._arriving or self._empty_since is None:
            return False
        over = self._all_left and (self.succession is None or self.succession.extinct())
        keep = self.timing.forget * (1 if over else KEEP_LOST)
        return now - self._empty_since >= keep

    # ---- what members say ------------------------------------------------------------------

    def hello(self, member: str, said: dict[str, Any], now: float) -> list[Message]:
        """A replica connected: new, back after a break, or met by a restarted authority. One of
        several lanes waits until all are here. Raises ProtocolError if they don't fit together."""
        lane, lanes = said.get("lane", 0), said.get("lanes", 1)
        arrival = self._arriving.setdefault(member, Arrival(lanes))
        if arrival.lanes != lanes or lane in arrival.said or not 0 <= lane < lanes:
            if not arrival.said:
                del self._arriving[member]
            raise ProtocolError(
                f"lane: {lane} of {lanes} of {member} doesn't fit lanes {sorted(arrival.said)} of "
                f"{arrival.lanes} that are here"
            )
        arrival.said[lane] = said
        self.term = max(self.term, said.get("term", 0) + (said.get("term_of") != self.incarnation))
        welcome = {"incarnation": self.incarnation, "silence": self.timing.silence, "lane": lane}
        out: list[Message] = [(member, "welcome", welcome)]
        if not arrival.complete:
            return out
        del self._arriving[member]
        return out + self._arrived(member, arrival.in_order(), now)

    def _arrived(self, member: str, said: Sequence[dict[str, Any]], now: float) -> list[Message]:
        first, parked = said[0], all(each["parked"] for each in said)
        epoch, claimed = first["epoch"], tuple(first.get("quorum", ()))
        key, out = first.get("key", ""), list[Message]()
        if epoch > self.epoch and claimed:
            out += self._adopt(epoch, claimed, key, now)
        for each in said:
            self._learn(each)
            self.epoch = max(self.epoch, each["epoch"], each.get("epoch_floor", 0))
        same = all((each["epoch"], each.get("key", "")) == (epoch, key) for each in said)
        back = member in self.missing and key == self.key and (parked or same)
        self._orders += 1
        order = (self.quorum.index(member) if back else NEW_RANK, self._orders)
        self.members[member] = admitted(member, said, order, now)
        self._leads = None
        self.last_step = max(self.last_step, first["step"] if first["live"] else 0)
        if self.missing.pop(member, None) is not None and not back:
            self._drop(member, first["name"])
            out += self._urgent("replica_lost", 0.0)
        if not parked and not back:
            # It trains in an epoch that has gone on without it: fenced out, it may come again.
            out += [
                (member, "change",
                 self._change(each["epoch"], urgent=True, cause="fenced") | {"lane": lane})
                for lane, each in enumerate(said) if not each["parked"]
            ]  # fmt: skip
            return out
        if self.finished and not first["live"]:
            del self.members[member]  # who only asks doesn't keep the job in mind
            return [*out, (member, "finished", {})]
        if self.changing and not parked:
            urgent = self.changing == "urgent"
            out.append((member, "change", self._change(epoch, urgent=urgent, cause=self.cause)))
        return out + self._plan_change("restarted" if back else "joined") + self._next(now)

    def _learn(self, said: dict[str, Any]) -> None:
        if self.succession is not None:
            self.succession.history.learn(History.from_dict(said.get("history")))
            self.epoch = max(self.epoch, self.succession.history.newest_epoch)
            self._leads = None

    def beat(self, member: str, said: dict[str, Any], now: float) -> list[Message]:
        """Progress of a training thread; answered, so that the member's lease goes on."""
        known = self.members.get(member)
        if known is None:
            return []
        lane = said.get("lane", 0)
        known.lanes[lane].beat(said["counter"], said["phase"], now)
        if not known.parked:
            self.last_step = max(self.last_step, said.get("step", 0))
        if self._leads is None:
            self._leads = self._lack(self.members.values()) is None
        # Without an answer its lease ends: another authority may be the one that leads.
        return [(member, "ack", {"n": said["n"], "lane": lane})] if self._leads else []

    def park(self, member: str, said: dict[str, Any], now: float) -> list[Message]:
        """A member stopped between steps (or after a failed one) and waits for the next quorum."""
        known = self.members.get(member)
        if known is None:
            return []
        lane = said.get("lane", 0)
        known.lanes[lane].stopped(now)
        known.leaving = known.leaving or said.get("leaving", False)
        if lane == 0:
            known.live, known.epoch, known.step = said["live"], said["epoch"], said["step"]
            known.address = said.get("address", known.address)
        self._learn(said)
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
        """A member goes for good: it reached the last step, was released (`left`), or its own code
        failed. It takes up nothing more."""
        self._gone(member, said.get("epoch", -1))
        known = self.members.get(member)
        if known is None:
            return self._next(now)
        if said.get("reason") != "finished":
            return self.lost(member, now, cause="replica_failed")
        self.finished = self._all_left = True
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
        arriving = self._arriving.pop(member, None)
        self.missing.pop(member, None)
        self._told.pop(member, None)
        self._leads = None
        out: list[Message] = []
        if arriving is not None or (known is not None and len(known.lanes) > 1):
            out = [(member, "close", {})]  # its other lanes
        if known is None or member not in self.quorum:
            return out + self._next(now)
        self._drop(member, known.name)
        return out + self._urgent(cause, age) + self._next(now)

    def dead(self, said: dict[str, Any], now: float) -> list[Message]:
        """An agent saw this replica's process end: nobody waits for it, and it votes no more."""
        member = said.get("member", "")
        if member:
            self._gone(member, said["epoch"])
        out: list[Message] = []
        for each in [*self.members, *self._arriving, *self.missing]:
            if each != member and (member or name_of(each) != said["name"]):
                continue
            if each in self.missing:
                del self.missing[each]
                self._drop(each, name_of(each))
                out += self._urgent("replica_lost", 0.0)
            else:
                out += [(each, "close", {}), *self.lost(each, now)]
        return out + self._next(now)

    def drain(self, names: Iterable[str], now: float) -> list[Message]:
        """The replicas of these names shall leave after the step that they are in."""
        wanted = set(names)
        drained = [m.id for m in self.members.values() if m.name in wanted]
        return [message for member in drained for message in self.leave(member, now)]

    def _gone(self, member: str, last_epoch: int) -> None:
        if self.succession is not None and last_epoch >= 0:
            self.succession.gone(member, last_epoch)
            self._leads = None

    def tick(self, now: float) -> list[Message]:
        """Expire who is silent or stands still. The caller closes the lost ones' connections."""
        out: list[Message] = []
        for member in [m for m, deadline in self.missing.items() if now >= deadline]:
            del self.missing[member]
            self._drop(member, name_of(member))
            out += self._urgent("replica_lost", 0.0)
        for member, since in self.expired(now):
            out += [(member, "close", {"cause": "replica_hung"})]
            out += self.lost(member, now, cause="replica_hung", age=now - since)
        if self._stuck(now):
            out += self._urgent("reduction_stuck", self.timing.progress)
        if self.members or self.missing or self._arriving:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        return out + self._next(now)

    def expired(self, now: float) -> list[tuple[str, float]]:
        """Members of which a lane is silent, or computes without progress, and since when."""
        since = {
            m.id: [lane.given_up_since(now, self.timing) for lane in m.lanes]
            for m in self.members.values()
        }
        found = [(member, [t for t in times if t is not None]) for member, times in since.items()]
        return [(member, min(times)) for member, times in found if times]

    # ---- how a quorum follows another ------------------------------------------------------

    def _adopt(self, epoch: int, claimed: Iterable[str], key: str, now: float) -> list[Message]:
        """After our own restart: take over the quorum that a member says it trains in."""
        self.epoch, self.quorum, self.key = epoch, tuple(claimed), key
        self.missing = {
            member: now + self.timing.reconnect
            for member in self.quorum
            if member not in self.members
        }
        self._old_names = {member: name_of(member) for member in self.quorum}
        out: list[Message] = []
        for member in self.members.values():
            if member.id in self.quorum:
                member.order = (self.quorum.index(member.id), 0)
            elif not member.parked:
                change = self._change(member.epoch, urgent=True, cause="fenced")
                out.append((member.id, "change", change))
        return out

    def _drop(self, member: str, name: str) -> None:
        self.quorum = tuple(each for each in self.quorum if each != member)
        self._lost.append(name)
        self._all_left = False

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
        since = [m.reducing_since() for m in running]
        return bool(since) and all(
            each is not None and now - each > self.timing.progress for each in since
        )

    def _next(self, now: float) -> list[Message]:
        """Form the next quorum if everybody who has to has parked."""
        if not self.changing or self._running() or self.missing:
            return []
        parked = sorted((m for m in self.members.values() if m.parked), key=lambda m: m.order)
        staying = [m for m in parked if not m.leaving]
        out = self._release([m for m in parked if m.leaving], staying)
        lack = self._lack(staying)
        if lack is not None:
            return out + self._wait(staying, lack)
        if len(staying) < max(1, self.min_replicas):
            return out + self._wait(staying)
        store = self.store_of()
        if store is None:
            return out
        return out + self._form(staying, store, now)

    def _lack(self, members: Iterable[Member]) -> Lack | None:
        """Of a quorum of those of these members that stay."""
        if self.succession is None:
            return None
        return self.succession.lack({m.id for m in members if not m.leaving})

    def _release(self, leaving: list[Member], staying: list[Member]) -> list[Message]:
        """Let the leaving go. The last one that holds the newest state writes a checkpoint."""
        newest = max((m.epoch, m.step) for m in [*leaving, *staying]) if leaving else (0, 0)
        kept = any(m.live and (m.epoch, m.step) == newest for m in staying)
        writer = None
        if not kept:
            holders = [m for m in leaving if m.live and (m.epoch, m.step) == newest]
            writer = holders[0].id if holders else None
        for member in leaving:
            if member.id in self.quorum:
                self._left.append(member.name)
            self._told.pop(member.id, None)
            del self.members[member.id]
            self.quorum = tuple(each for each in self.quorum if each != member.id)
        return [(m.id, "released", {"checkpoint": m.id == writer}) for m in leaving]

    def _wait(self, staying: list[Member], lack: Lack | None = None) -> list[Message]:
        have, need = len(staying), self.min_replicas
        values: dict[str, Any] = {"epoch": self.epoch, "members": [m.name for m in staying]}
        if lack is not None:
            have, need = lack.have, lack.need
            values |= {"minority": True, "absent": [name_of(each) for each in lack.absent]}
        out: list[Message] = []
        for member in staying:
            word = (have, need, member is staying[0], lack)
            if self._told.get(member.id) != word:
                self._told[member.id] = word
                said = {"have": have, "need": need, "reporter": word[2], **values}
                out.append((member.id, "waiting", said))
        return out

    def _form(self, staying: list[Member], store: int, now: float) -> list[Message]:
        live = [m for m in staying if m.live]
        newest = max(((m.epoch, m.step) for m in live), default=None)
        if newest is not None:
            source = next(m for m in live if (m.epoch, m.step) == newest)
        else:
            source = max(staying, key=lambda m: m.checkpoint_step)
        self.epoch += 1
        self.key = f"{self.job}/{self.incarnation}/{self.epoch}"
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
            prefix=self.key, last_step=self.last_step, term=self.term, base=self._consented(),
            history=self._followed(),
            cause=self.cause, lost=tuple(self._lost), left=tuple(self._left), joined=joined,
        )  # fmt: skip
        self.quorum = tuple(m.id for m in staying)
        if self.succession is not None:
            self.succession.history.take_up(
                Config(quorum.epoch, quorum.base, quorum.prefix, self.quorum)
            )
        self._leads = None
        self._old_names = {m.id: m.name for m in staying}
        self._lost, self._left, self._told = [], [], {}
        self.changing, self.cause, self.finished, self._all_left = "", "", False, True
        for rank, member in enumerate(staying):
            member.begin(self.epoch, rank, now)
        return [(m.id, "quorum", quorum.to_dict()) for m in staying]

    def _consented(self) -> int:
        """The highest epoch of which enough members are here to follow it."""
        return self.succession.history.newest_epoch if self.succession is not None else 0

    def _followed(self) -> dict[str, Any] | None:
        """For members that are new: without it they would count as voters who know of no past."""
        return self.succession.history.to_dict() if self.succession is not None else None
