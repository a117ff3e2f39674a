"""Messages between a replica and the membership authority: one JSON object a line over TCP.

Standard library only. An unknown field is ignored; an unknown protocol version is refused with a
sentence that names both.

Every connection begins with: caller `open {protocol, job, nonce}`, authority `challenge {protocol,
nonce, proof, term}`, caller `hello {role, proof, ...}`, authority `welcome` or `refused {message}`
(see handshake.py).

Replica to authority: hello, beat, park, leave, bye. Authority to replica: welcome, ack, change,
quorum, waiting, released, finished, refused. A replica of several ranks has a connection a rank
(`lane` of `lanes` in hello); it joins, parks and is lost as a whole.

Agent (what starts the replicas of a node; `role` agent): hello {protocol, job, name, names: of the
replicas it started}; names {names} when they changed; dead {name, code, member, epoch}: this
replica's process has ended for certain; its exit code (negative: signal), its member id and the
last epoch that it took up (empty and -1: not known); drain {names}: the same as leave, for those
that are connected. To an agent: expired {name, cause}: given up by the authority, so end its
process and start another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

PROTOCOL = 2
MAX_LINE = 4 * 1024 * 1024


class ProtocolError(ValueError):
    """What came can't be a message of this protocol."""


class Phase(StrEnum):
    """What the training thread does. Only COMPUTE is held to the progress time-out: in REDUCE a
    replica waits for others, in PAUSED it announced a long call, in PARKED it has stopped."""

    COMPUTE = "compute"
    REDUCE = "reduce"
    PARKED = "parked"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Peer:
    """One member of a quorum, as published. `copies` says that it needs the source's state,
    `address` (host:port) where its part of the next group listens; empty if it said none."""

    id: str
    name: str
    step: int
    copies: bool
    address: str = ""


@dataclass(frozen=True, slots=True)
class Quorum:
    """Who trains together in `epoch`, in rank order (by seniority).

    `source` is the id of the member whose state all with `copies` take over. `origin` is `peer`
    when that state is live, `start` when nobody has one: the source then loads the newest whole
    checkpoint or starts afresh, and says which. `last_step` is the highest step known to have been
    committed, `cause` why the epoch changed, `lost` the names of members that went without leaving.
    `term` rises with each authority that takes a job over, `base` is the highest epoch with whose
    consent this one was formed and `history` the quorums that it may follow (succession.py).
    """

    epoch: int
    members: tuple[Peer, ...]
    source: str
    origin: str
    store_port: int
    prefix: str
    last_step: int
    cause: str = ""
    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    term: int = 0
    base: int = 0
    history: dict[str, Any] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(peer.name for peer in self.members)

    def rank(self, member: str) -> int:
        """Rank of the member with this id; ValueError if it isn't one."""
        return [peer.id for peer in self.members].index(member)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Quorum:
        values = {each.name: raw[each.name] for each in fields(cls) if each.name in raw}
        values["members"] = tuple(Peer(**peer) for peer in raw["members"])
        for name in ("lost", "left", "joined"):
            values[name] = tuple(values[name])
        return cls(**values)


def to_line(kind: str, **values: Any) -> bytes:
    return json.dumps({"kind": kind, **values}, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> dict[str, Any]:
    """Raises ProtocolError for what is no JSON object with a `kind`."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ProtocolError("not a JSON object with a kind")
    return message


def parse_address(text: str, *, what: str = "address") -> tuple[str, int]:
    """`host:port` -> (host, port). Raises ValueError naming `what`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{what}: must be host:port, such as 127.0.0.1:29400 (got {text!r})")
    return host.strip("[]"), int(port)


def parse_addresses(text: str, *, what: str = "address") -> list[tuple[str, int]]:
    """`host:port[,host:port...]`, in order of preference. Raises ValueError naming `what`."""
    addresses = [parse_address(each.strip(), what=what) for each in text.split(",")]
    if len(set(addresses)) < len(addresses):
        raise ValueError(f"{what}: names an authority twice (got {text!r})")
    return addresses
