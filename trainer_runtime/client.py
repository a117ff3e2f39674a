"""A replica's side of the membership: one background thread that talks to the authority.

The training thread reads flags (`pending`, `superseded`), reports what it does (`working`) and
waits in `wait_for_quorum`. The background thread sends heartbeats that carry the training thread's
own progress counter, takes in what the authority says, and comes back after a lost connection, to
another authority if there are several candidates.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.handshake import HandshakeError, Secret, open_connection
from trainer_runtime.protocol import (
    PROTOCOL,
    Phase,
    ProtocolError,
    Quorum,
    from_line,
    to_line,
)
from trainer_runtime.route import Route
from trainer_runtime.succession import Config, History

BEAT_S = 0.2
_CONNECT_S = 5.0
_CONNECT_SEVERAL_S = 2.0  # where another candidate can be tried instead
_BACKOFF_S = (0.05, 1.0)
_DOUBT_S = 1.0
_LEASE_SHARE = 0.6  # of the silence after which the authority gives a replica up


class AuthorityError(RuntimeError):
    """The authority refused this replica; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Why the epoch goes out of force, when it was noticed and since when it was so (monotonic)."""

    cause: str
    noticed_at: float
    since: float
    lost: tuple[str, ...] = ()


@dataclass(slots=True)
class Claim:
    """What this replica says of itself; changed by the training thread under the client's lock."""

    epoch: int = 0
    state_epoch: int = 0
    step: int = 0
    live: bool = False
    parked: bool = True
    quorum: tuple[str, ...] = ()
    checkpoint_step: int = -1
    epoch_floor: int = 0
    key: str = ""
    term: int = 0
    term_of: str = ""
    history: History = field(default_factory=History)


class Client:
    """`on_superseded(notice)` runs in the background thread: it must abort the old group.

    `address` may be several, in order of preference. `lane` of `lanes`: this process is one of the
    ranks of a replica; they share its `member` id. `secret` is taken from the environment if none
    is given. In the file that CONCERTINA_EPOCH_FILE names, lane 0 leaves its last epoch for the
    agent that started it."""

    def __init__(
        self,
        address: tuple[str, int] | Sequence[tuple[str, int]],
        *,
        job: str,
        member: str,
        name: str,
        min_replicas: int,
        on_superseded: Callable[[Notice], None],
        lane: int = 0,
        lanes: int = 1,
        secret: Secret | None = None,
    ) -> None:
        single = isinstance(address, tuple) and len(address) == 2 and isinstance(address[1], int)
        self._route = Route([address] if single else address)  # type: ignore[list-item, arg-type]
        self.job, self.member, self.name = job, member, name
        self.lane, self.lanes = lane, lanes
        self._secret = secret or Secret.from_env()
        self._epoch_file = os.environ.get("CONCERTINA_EPOCH_FILE", "") if lane == 0 else ""
        self._refusals: dict[tuple[str, int], str] = {}
        self._incarnation = ""
        self._leave_by: float | None = None  # this authority lacks a majority: try another then
        self._said_bye = False
        self._lease_s = 0.0
        self._broken_at = time.monotonic()
        self._said_leaving = False
        self.claim = Claim()
        self.pending = False  # a planned change waits for the end of the step
        self.superseded: Notice | None = None  # the epoch is out of force
        self.leaving = False
        self.connected = False
        self.waiting: dict[str, Any] | None = None
        self.released: dict[str, Any] | None = None
        self.finished = False
        self.refused: str | None = None
        self.local_host = "127.0.0.1"
        self.peer_address = ""  # where this replica's part of the next group listens
        self._min_replicas = min_replicas
        self._on_superseded = on_superseded
        self._quorum: Quorum | None = None
        self._early: tuple[int, bool] | None = None
        self._phase, self._counter = Phase.PARKED, 0
        self._beats: dict[int, float] = {}
        self._beat_number = 0
        self._lease_until = 0.0
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._socket: socket.socket | None = None
        self._closing = threading.Event()
        self._wake_r, self._wake_w = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)

    # ---- for the training thread -----------------------------------------------------------

    def start(self) -> None:
        self._leave_word()
        self._route.begin()
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Of the authority that is followed, or tried."""
        return self._route.address

    def close(self) -> None:
        """Ends the connection: without a `bye` before, the authority takes it for a death."""
        self._closing.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        for end in (self._wake_r, self._wake_w):
            end.close()

    def working(self, phase: Phase) -> None:
        """The training thread made progress and is now in `phase`. Costs no system call."""
        self._counter += 1
        self._phase = phase

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A long call is announced: standing still is no sign of a hang until it ends."""
        before = self._phase
        self.working(Phase.PAUSED)
        self._wake()
        try:
            yield
        finally:
            self.working(before)

    @contextlib.contextmanager
    def commit(self, epoch: int, *, alone: bool) -> Iterator[bool]:
        """Yields whether a step of `epoch` may be applied; while inside, the epoch stays in force.

        Without a lease (a beat answered a short while ago: a process that was stopped has none when
        it wakes) it waits for an answer or for the notice that it was fenced out. While the
        authority is gone, peers' reduction proves that the quorum is whole; a replica alone in its
        quorum has no such proof and waits in place.
        """
        with self._changed:
            while self._doubtful(alone):
                self._wake()
                self._changed.wait(BEAT_S)
            allowed = self.superseded is None and self.claim.epoch == epoch
            if allowed and self.claim.history.pending:
                # Its reduction has ended, so that everybody took the quorum up.
                self.claim.history.activate(self.claim.key)
            yield allowed

    def _doubtful(self, alone: bool) -> bool:
        now = time.monotonic()
        if self.superseded is not None or now < self._lease_until or self._closing.is_set():
            return False
        if self.connected:
            return True
        if alone:
            return not self.leaving  # who leaves goes on to its checkpoint
        return now - self._broken_at < _DOUBT_S

    def park(self, *, failed: bool) -> None:
        """Stopped between steps: tell the authority, which then forms the next quorum."""
        with self._changed:
            self.claim.parked = True
            self.working(Phase.PARKED)
            self._say(
                "park", epoch=self.claim.state_epoch, step=self.claim.step, live=self.claim.live,
                failed=failed, leaving=self.leaving, address=self.peer_address,
                **self._told_history(),
            )  # fmt: skip

    def next_quorum(self, timeout: float) -> Quorum | None:
        """Take up the next quorum: from here on this replica trains in it, and the flags of the
        last epoch are cleared. None when something else is to be looked at or time is up."""
        with self._changed:
            if not self._something():
                self._changed.wait(timeout)
            quorum, self._quorum = self._quorum, None
            if quorum is None or self.released is not None or self._said_bye:
                return None
            self._take_up(quorum)
            self.pending, self.superseded, self.waiting = self.leaving, None, None
            if self._early is not None and self._early[0] == quorum.epoch:
                self.pending = True
                if self._early[1]:
                    now = time.monotonic()
                    self.superseded = Notice("superseded", now, now)
            self._early = None
            self.working(Phase.PAUSED)
            return quorum

    def _take_up(self, quorum: Quorum) -> None:
        claim = self.claim
        claim.epoch, claim.parked, claim.key = quorum.epoch, False, quorum.prefix
        claim.quorum = tuple(peer.id for peer in quorum.members)
        claim.term, claim.term_of = quorum.term, self._incarnation
        if self._route.several:
            claim.history.learn(History.from_dict(quorum.history))
            claim.history.take_up(Config(quorum.epoch, quorum.base, quorum.prefix, claim.quorum))
        self._leave_word()

    def _leave_word(self) -> None:
        """What the agent will know of this process after its death."""
        if self._epoch_file:
            partial = Path(f"{self._epoch_file}.partial")
            partial.write_text(json.dumps({"member": self.member, "epoch": self.claim.epoch}))
            partial.replace(self._epoch_file)

    def _told_history(self) -> dict[str, Any]:
        return {"history": self.claim.history.to_dict()} if self._route.several else {}

    def request_leave(self) -> None:
        """The replica wants to go after its current step. Callable from a signal handler."""
        self.leaving = True
        self.pending = True
        self._wake()

    def take_waiting(self) -> dict[str, Any] | None:
        """What the authority said about a quorum that is too small, once."""
        with self._changed:
            waiting, self.waiting = self.waiting, None
            return waiting

    def unreachable_for(self) -> float:
        """Seconds without a connection to the authority."""
        with self._changed:
            return 0.0 if self.connected else time.monotonic() - self._broken_at

    def rest(self, seconds: float) -> None:
        """Wait; the end of the client ends it."""
        self._closing.wait(seconds)

    def bye(self, reason: str, step: int) -> None:
        with self._changed:
            self._said_bye = True
            self._say("bye", reason=reason, step=step, epoch=self.claim.epoch)

    def locked(self) -> threading.RLock:
        """Held while `claim` is changed together with the state that it describes."""
        return self._lock

    # ---- background ------------------------------------------------------------------------

    def _something(self) -> bool:
        return bool(
            self._quorum or self.released or self.finished or self.refused or self._closing.is_set()
        )

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_w.send(b".", socket.MSG_DONTWAIT)

    def _say(self, kind: str, **values: Any) -> None:
        """Send, if there is a connection; what matters is said again in `hello` after a break."""
        if self._socket is not None:
            try:
                self._socket.sendall(to_line(kind, **values))
            except OSError:
                self._wake()

    def _run(self) -> None:
        delay = _BACKOFF_S[0]
        while not self._closing.is_set():
            connected = False
            try:
                self._connect()
                connected, delay = True, _BACKOFF_S[0]
                self._talk()
            except HandshakeError as error:
                self._refused(str(error))
            except (OSError, ProtocolError):
                pass
            finally:
                self._disconnect()
            if self._route.next(connected=connected) and not self._closing.is_set():
                self._closing.wait(delay)
                delay = min(delay * 2, _BACKOFF_S[1])

    def _refused(self, why: str) -> None:
        """Refused for good once every candidate has."""
        with self._changed:
            self._refusals[self.address] = why
            if len(self._refusals) == len(self._route.addresses):
                self.refused = why
            self._changed.notify_all()

    def _connect(self) -> None:
        wait = _CONNECT_S if not self._route.several else _CONNECT_SEVERAL_S
        connection = socket.create_connection(self.address, timeout=wait)
        try:
            shaken, _ = open_connection(connection, self.job, self._secret)
        except BaseException:
            connection.close()
            raise
        connection.settimeout(_CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_host = connection.getsockname()[0]
        with self._changed:
            self._socket, self.connected = connection, True
            claim = self.claim
            self._said_leaving = self.leaving
            self._say(
                "hello", protocol=PROTOCOL, job=self.job, member=self.member, name=self.name,
                proof=shaken.proof("replica", self.member), lane=self.lane, lanes=self.lanes,
                candidates=len(self._route.addresses),
                epoch=claim.epoch, state_epoch=claim.state_epoch, step=claim.step,
                live=claim.live, parked=claim.parked, quorum=claim.quorum, key=claim.key,
                term=claim.term, term_of=claim.term_of, leaving=self.leaving,
                checkpoint_step=claim.checkpoint_step, epoch_floor=claim.epoch_floor,
                min_replicas=self._min_replicas, address=self.peer_address,
                **self._told_history(),
            )  # fmt: skip
            self._changed.notify_all()

    def _disconnect(self) -> None:
        with self._changed:
            if self._socket is not None:
                self._socket.close()
            if self.connected:
                self._broken_at = time.monotonic()
            self._socket, self.connected = None, False
            self._quorum = None  # the authority takes us for dead: it forms another
            self._beats.clear()
            self._leave_by = None
            self._changed.notify_all()

    def _talk(self) -> None:
        """Until the connection ends: a beat every BEAT_S, and what the authority says."""
        assert self._socket is not None
        buffer, next_beat = b"", 0.0
        while not self._closing.is_set():
            now = time.monotonic()
            if self._leave_by is not None and now >= self._leave_by and self.claim.parked:
                return
            if now >= next_beat:
                self._beat(now)
                next_beat = now + BEAT_S
            ready, _, _ = select.select([self._socket, self._wake_r], [], [], next_beat - now)
            if self._wake_r in ready:
                self._wake_r.recv(4096)
                next_beat = 0.0
            if self._socket in ready:
                data = self._socket.recv(1 << 16)
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._take(from_line(line))

    def _beat(self, now: float) -> None:
        with self._lock:
            if self.leaving and not self._said_leaving:
                self._said_leaving = True
                self._say("leave")
            self._beat_number += 1
            self._beats[self._beat_number] = now
            while len(self._beats) > 64:
                del self._beats[next(iter(self._beats))]
            self._say(
                "beat", n=self._beat_number, counter=self._counter, phase=self._phase,
                step=self.claim.step,
            )  # fmt: skip

    def _take(self, message: dict[str, Any]) -> None:
        notice: Notice | None = None
        with self._changed:
            match message["kind"]:
                case "welcome":
                    self._lease_s = _LEASE_SHARE * message["silence"]
                    self._incarnation = message["incarnation"]
                    self._refusals.clear()
                case "ack":
                    sent = self._beats.pop(message["n"], None)
                    if sent is not None:
                        self._lease_until = max(self._lease_until, sent + self._lease_s)
                case "change":
                    notice = self._take_change(message)
                case "quorum":
                    quorum = Quorum.from_dict(message)
                    History.from_dict(quorum.history)  # refuses here what can't be one
                    # A term that is lower than one that was followed is of the past.
                    if quorum.term >= self.claim.term:
                        self._quorum, self._leave_by = quorum, None
                case "waiting":
                    self.waiting = message
                    self._bear_minority(bool(message.get("minority")))
                case "released":
                    self.released = message
                    self._say("bye", reason="left", epoch=self.claim.epoch)
                case "finished":
                    self.finished = True
                case "refused" if not message.get("retry"):
                    self._refused(message["message"])
            self._changed.notify_all()
        if notice is not None:
            self._on_superseded(notice)

    def _bear_minority(self, minority: bool) -> None:
        """Only for so long: the others may have gathered at another candidate."""
        if not minority or not self._route.several:
            self._leave_by = None
        elif self._leave_by is None:
            self._leave_by = time.monotonic() + self._route.stay()

    def _take_change(self, message: dict[str, Any]) -> Notice | None:
        if message["epoch"] != self.claim.epoch:
            # Of a quorum that was sent but not taken up yet.
            urgent = bool(message["urgent"]) or (self._early is not None and self._early[1])
            self._early = (message["epoch"], urgent)
            return None
        self.pending = True
        if not message["urgent"] or self.superseded is not None or self.claim.parked:
            return None
        now = time.monotonic()
        self.superseded = Notice(
            message["cause"], now, now - message["age"], tuple(message["lost"])
        )
        return self.superseded
