"""A replica's side of the membership: one background thread that talks to the authority.

The training thread reads flags (`pending`, `superseded`), reports what it does (`working`) and
waits in `wait_for_quorum`. The background thread sends heartbeats that carry the training thread's
own progress counter, takes in what the authority says, and comes back after a lost connection.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainer_runtime.protocol import (
    PROTOCOL,
    Phase,
    ProtocolError,
    Quorum,
    from_line,
    to_line,
)

BEAT_S = 0.2
_CONNECT_S = 5.0
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


class Client:
    """`on_superseded(notice)` runs in the background thread: it must abort the old group."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        job: str,
        member: str,
        name: str,
        min_replicas: int,
        on_superseded: Callable[[Notice], None],
    ) -> None:
        self.address, self.job, self.member, self.name = address, job, member, name
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
        self._thread.start()

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
            yield self.superseded is None and self.claim.epoch == epoch

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
            )  # fmt: skip

    def next_quorum(self, timeout: float) -> Quorum | None:
        """Take up the next quorum: from here on this replica trains in it, and the flags of the
        last epoch are cleared. None when something else is to be looked at or time is up."""
        with self._changed:
            if not self._something():
                self._changed.wait(timeout)
            quorum, self._quorum = self._quorum, None
            if quorum is None:
                return None
            self.claim.epoch, self.claim.parked = quorum.epoch, False
            self.claim.quorum = tuple(peer.id for peer in quorum.members)
            self.pending, self.superseded, self.waiting = self.leaving, None, None
            if self._early is not None and self._early[0] == quorum.epoch:
                self.pending = True
                if self._early[1]:
                    now = time.monotonic()
                    self.superseded = Notice("superseded", now, now)
            self._early = None
            self.working(Phase.PAUSED)
            return quorum

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
            self._say("bye", reason=reason, step=step)

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
            try:
                self._connect()
                delay = _BACKOFF_S[0]
                self._talk()
            except (OSError, ProtocolError):
                pass
            finally:
                self._disconnect()
            if not self._closing.is_set():
                self._closing.wait(delay)
                delay = min(delay * 2, _BACKOFF_S[1])

    def _connect(self) -> None:
        connection = socket.create_connection(self.address, timeout=_CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_host = connection.getsockname()[0]
        with self._changed:
            self._socket, self.connected = connection, True
            claim = self.claim
            self._said_leaving = self.leaving
            self._say(
                "hello", protocol=PROTOCOL, job=self.job, member=self.member, name=self.name,
                epoch=claim.epoch, state_epoch=claim.state_epoch, step=claim.step,
                live=claim.live, parked=claim.parked, quorum=claim.quorum, leaving=self.leaving,
                checkpoint_step=claim.checkpoint_step, epoch_floor=claim.epoch_floor,
                min_replicas=self._min_replicas, address=self.peer_address,
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
            self._changed.notify_all()

    def _talk(self) -> None:
        """Until the connection ends: a beat every BEAT_S, and what the authority says."""
        assert self._socket is not None
        buffer, next_beat = b"", 0.0
        while not self._closing.is_set():
            now = time.monotonic()
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
                case "ack":
                    sent = self._beats.pop(message["n"], None)
                    if sent is not None:
                        self._lease_until = max(self._lease_until, sent + self._lease_s)
                case "change":
                    notice = self._take_change(message)
                case "quorum":
                    self._quorum = Quorum.from_dict(message)
                case "waiting":
                    self.waiting = message
                case "released":
                    self.released = message
                case "finished":
                    self.finished = True
                case "refused":
                    self.refused = message["message"]
            self._changed.notify_all()
        if notice is not None:
            self._on_superseded(notice)

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
