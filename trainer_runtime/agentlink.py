"""An agent's connection to the membership authorities: deaths and drains there, expiries back.

    link = AgentLink([("127.0.0.1", 29400)], job="default", agent="node-1", on_expired=replace)
    link.start()
    link.started("replica-0")
    link.dead("replica-0", code=-9, last=last_word(path))  # of CONCERTINA_EPOCH_FILE
    link.drain(["replica-1"])
    link.close()

Standard library only. Every candidate authority is told, since a death that is certain is what lets
another one go on without the dead; what can't be sent now is sent when the connection is back.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainer_runtime.handshake import Secret, open_connection
from trainer_runtime.protocol import PROTOCOL, ProtocolError, from_line, to_line

_CONNECT_S = 5.0
_BACKOFF_S = (0.05, 1.0)
_KEPT = 1024  # deaths that are told again to an authority that comes (back) up
_BUFFER = 1 << 16

Expired = Callable[[str, str], None]


class LastWord(NamedTuple):
    """A replica's member id and the last epoch that it took up; empty and -1 if not known."""

    member: str = ""
    epoch: int = -1


def last_word(path: Path) -> LastWord:
    """From the file that the replica was given in `CONCERTINA_EPOCH_FILE`: one for each start of a
    process, on a disk of its own host."""
    try:
        said = json.loads(path.read_text())
        return LastWord(str(said["member"]), int(said["epoch"]))
    except (OSError, ValueError, KeyError, TypeError):
        return LastWord()


class AgentLink:
    """`on_expired(name, cause)` runs in a thread of the link: the authority gave this replica up,
    its process is to be ended and replaced. `log` gets one line when an authority refuses."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        *,
        job: str,
        agent: str,
        on_expired: Expired,
        secret: Secret | None = None,
        log: Callable[[str], None] = print,
    ) -> None:
        self.job, self.agent = job, agent
        self._secret, self._on_expired, self._log = secret, on_expired, log
        self._names: set[str] = set()
        self._deaths: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._lines = [_Line(self, address) for address in addresses]

    def start(self) -> None:
        for line in self._lines:
            line.thread.start()

    def close(self) -> None:
        """End the connections; nothing is said by that."""
        self._closing.set()
        for line in self._lines:
            line.hang_up()
        for line in self._lines:
            if line.thread.is_alive():
                line.thread.join(timeout=_CONNECT_S + 1.0)

    @property
    def connected(self) -> int:
        """With how many authorities."""
        return sum(line.up.is_set() for line in self._lines)

    def wait_connected(self, timeout: float) -> bool:
        """Whether every authority is reached, within `timeout` seconds for each."""
        return all(line.up.wait(timeout) for line in self._lines)

    def started(self, *names: str) -> None:
        """This agent started these replicas: it is told when one of them is given up."""
        with self._lock:
            self._names.update(names)
            for name in names:
                self._deaths.pop(name, None)
            self._tell("names", names=sorted(self._names))

    def dead(self, name: str, code: int, *, last: LastWord | None = None) -> None:
        """The process of this replica has ended for certain. Only the agent that waited for it may
        say so: others may go on without it then. Without its last word nobody waits for it, but it
        still counts where a majority is needed."""
        last = last or LastWord()
        with self._lock:
            self._names.discard(name)
            values = {"name": name, "code": code, "member": last.member, "epoch": last.epoch}
            self._deaths[name] = values
            while len(self._deaths) > _KEPT:
                self._deaths.popitem(last=False)
            self._tell("dead", **values)

    def drain(self, names: Iterable[str]) -> None:
        """Let these replicas leave after the step they are in. Not repeated after a break."""
        with self._lock:
            self._tell("drain", names=sorted(names))

    def _tell(self, kind: str, **values: Any) -> None:
        for line in self._lines:
            line.say(kind, **values)

    def _greeting(self) -> list[tuple[str, dict[str, Any]]]:
        names = sorted(self._names)
        deaths = [("dead", values) for values in self._deaths.values()]
        return [("hello", {"role": "agent", "names": names}), *deaths]


class _Line:
    """One authority's connection, kept up by a thread. The link's lock orders what is sent."""

    def __init__(self, link: AgentLink, address: tuple[str, int]) -> None:
        self.link, self.address = link, address
        self.up = threading.Event()
        self._socket: socket.socket | None = None
        self._said = ""
        self.thread = threading.Thread(target=self._run, name="agent-link", daemon=True)

    def say(self, kind: str, **values: Any) -> None:
        if self._socket is not None:
            try:
                self._socket.sendall(to_line(kind, **values))
            except OSError:
                self.hang_up()

    def hang_up(self) -> None:
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        link, delay = self.link, _BACKOFF_S[0]
        while not link._closing.is_set():
            try:
                with socket.create_connection(self.address, timeout=_CONNECT_S) as connection:
                    self._greet(connection)
                    delay = _BACKOFF_S[0]
                    self._listen(connection)
            except ProtocolError as error:
                self._complain(str(error))
            except OSError:
                pass
            finally:
                with link._lock:
                    self._socket = None
                self.up.clear()
            link._closing.wait(delay)
            delay = min(2 * delay, _BACKOFF_S[1])

    def _greet(self, connection: socket.socket) -> None:
        link = self.link
        shaken, _ = open_connection(connection, link.job, link._secret)
        with link._lock:
            for kind, values in link._greeting():
                if kind == "hello":
                    values |= {"protocol": PROTOCOL, "job": link.job, "name": link.agent,
                               "proof": shaken.proof("agent", link.agent)}  # fmt: skip
                connection.sendall(to_line(kind, **values))
            self._socket = connection
        # A sending that blocks for long would hold every caller up: give that connection up.
        connection.settimeout(_CONNECT_S)

    def _listen(self, connection: socket.socket) -> None:
        buffer = b""
        while not self.link._closing.is_set():
            try:
                data = connection.recv(_BUFFER)
            except TimeoutError:
                continue
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self._take(from_line(line))

    def _take(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "welcome":
                self.up.set()
            case "expired":
                self.link._on_expired(message["name"], message["cause"])
            case "refused":
                self._complain(message["message"])

    def _complain(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.link._log(f"authority {self.address[0]}:{self.address[1]}: {text}")
