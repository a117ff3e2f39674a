"""A full state from those who have it to those who need it, over the group of an epoch.

The packed state is cut into chunks. Everybody who is up to date sends its share of them (chunk k
comes from sender k modulo their number) to the first receiver, which passes each on to the next, so
that neither one sender's network nor the number of receivers decides how long it takes. One sender
is the source: only its description counts (counters, random state, every plain value), and its
checksums of all chunks, which come last. A chunk that differs (it was damaged, or the replicas'
buffers do differ) is fetched again from the source. If the source's own bytes don't fit its
checksums, the next sender becomes the source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from trainer_runtime.group import Group, Pending
from trainer_runtime.state import Layout, Packed, StateError

Sums = NDArray[np.uint64]
Log = Callable[[str], None]

# Small enough to be in a processor's cache still when it is checksummed.
CHUNK_BYTES = 4 * 1024 * 1024
# Chunks that are under way at once from each sender.
WINDOW = 4
# How often a source announces its checksums: chunks that differ come again in between.
TRIES = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranks that take part, the source being the first of `senders`, and by sender the length
    and the checksum of its description. `size` of the packed state in bytes."""

    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    size: int
    heads: dict[int, tuple[int, int]]

    @property
    def chunks(self) -> int:
        return -(-self.size // CHUNK_BYTES)

    def span(self, chunk: int) -> tuple[int, int]:
        return chunk * CHUNK_BYTES, min((chunk + 1) * CHUNK_BYTES, self.size)

    def share(self, rank: int) -> int:
        """Bytes that this rank sends of the chunks."""
        if rank not in self.senders:
            return 0
        own = range(self.senders.index(rank), self.chunks, len(self.senders))
        return sum(end - begin for begin, end in map(self.span, own))

    def before(self, rank: int, chunk: int) -> int:
        """The rank from which this receiver gets a chunk."""
        place = self.receivers.index(rank)
        return self.receivers[place - 1] if place else self.senders[chunk % len(self.senders)]

    def after(self, rank: int) -> int | None:
        """The rank to which this receiver passes on what it gets."""
        return dict(zip(self.receivers, self.receivers[1:], strict=False)).get(rank)


def agree(
    group: Group, source: int, receivers: Sequence[int], layout: Layout | None, log: Log
) -> Plan:
    """Who can send: those whose tensors lie where the source's do. Everybody in the group calls
    this, with its `layout` if it is up to date."""
    told = np.zeros((group.size, 4), dtype=np.uint64)
    if layout is not None:
        told[group.rank] = (
            layout.size, layout.shape_digest, len(layout.head), _xxh3(layout.head),
        )  # fmt: skip
    group.sum([torch.from_numpy(told.view(np.int64))])  # a row is its rank's alone
    able = [rank for rank in range(group.size) if rank not in receivers]
    others = [r for r in able if r != source and (told[r, :2] == told[source, :2]).all()]
    senders = (source, *others)
    if len(senders) < len(able) and group.rank == source:
        odd = sorted(set(able) - set(senders))
        log(f"state: ranks {odd} have other tensors than rank {source}, and send nothing")
    heads = {rank: (int(told[rank, 2]), int(told[rank, 3])) for rank in senders}
    return Plan(senders, tuple(receivers), int(told[source, 0]), heads)


def send(group: Group, plan: Plan, layout: Layout) -> Sums | None:
    """This sender's share of the chunks. Returns the checksums of all of them at the source."""
    is_source, going = group.rank == plan.senders[0], deque[Pending]()
    sums = np.zeros(plan.chunks, dtype=np.uint64)
    for chunk in range(plan.chunks):
        mine = plan.senders[chunk % len(plan.senders)] == group.rank
        if not mine and not is_source:
            continue
        piece = layout.piece(*plan.span(chunk))
        if mine:
            _make_room(going, WINDOW)
            going.append(group.start_send(piece, plan.receivers[0], chunk))
        if is_source:
            sums[chunk] = _xxh3(piece.numpy())
    _make_room(going, 1)
    return sums if is_source else None


def receive(group: Group, plan: Plan, data: torch.Tensor) -> Sums:
    """All chunks into `data`, each passed on as soon as it is here. Returns their checksums."""
    coming, passing = deque[Pending](), deque[Pending]()
    sums, after = np.zeros(plan.chunks, dtype=np.uint64), plan.after(group.rank)
    window = min(WINDOW * len(plan.senders), plan.chunks)
    for chunk in range(plan.chunks + window):
        if chunk < plan.chunks:
            piece, source = data[slice(*plan.span(chunk))], plan.before(group.rank, chunk)
            coming.append(group.start_receive(piece, source, chunk))
        if chunk < window:
            continue
        here = chunk - window
        coming.popleft().wait()
        piece = data[slice(*plan.span(here))]
        if after is not None:
            _make_room(passing, WINDOW)
            passing.append(group.start_send(piece, after, here))
        sums[here] = _xxh3(piece.numpy())
    _make_room(passing, 1)
    return sums


class _Sender:
    """A rank that is up to date: it sends its share, and as the source whatever differed."""

    def __init__(self, group: Group, plan: Plan, layout: Layout) -> None:
        self._group, self._plan, self._layout = group, plan, layout
        self._sums: Sums | None = None
        self.packed, self.bytes_moved = None, 0

    def move(self) -> None:
        self._sums = send(self._group, self._plan, self._layout)
        self.bytes_moved = self._plan.share(self._group.rank)

    def settle(self, source: int) -> bool:
        """Announce the description and the checksums, if this rank is the source."""
        if self._group.rank == source:
            if self._sums is None:
                spans = map(self._plan.span, range(self._plan.chunks))
                pieces = [_xxh3(self._layout.piece(*span).numpy()) for span in spans]
                self._sums = np.array(pieces, dtype=np.uint64)
            for rank in self._plan.receivers:
                self._group.send(_flat(self._layout.head), rank)
                self._group.send(_flat(self._sums.tobytes()), rank)
        return True

    def mend(self, source: int) -> None:
        if self._group.rank != source:
            return
        for rank in self._plan.receivers:
            wanted = torch.empty(self._plan.chunks + 1, dtype=torch.uint8)
            self._group.receive(wanted, rank)
            for chunk in wanted[:-1].nonzero().flatten().tolist():
                piece = self._layout.piece(*self._plan.span(chunk))
                self._group.start_send(piece, rank, chunk).wait()
                self.bytes_moved += piece.numel()


class _Receiver:
    """A rank that needs the state. `packed` is what it got, in the end."""

    def __init__(self, group: Group, plan: Plan, data: torch.Tensor, log: Log) -> None:
        self._group, self._plan, self._data, self._log = group, plan, data, log
        self._wanted = torch.zeros(plan.chunks + 1, dtype=torch.uint8)  # the last: the description
        self.packed, self.bytes_moved = Packed(b"", data, None), 0

    def move(self) -> None:
        self._sums = receive(self._group, self._plan, self._data)
        self.bytes_moved = self._plan.size

    def settle(self, source: int) -> bool:
        """Hear the source's description and checksums. Whether all that is here fits them."""
        length, checksum = self._plan.heads[source]
        head = torch.empty(length, dtype=torch.uint8)
        sums = torch.empty(8 * self._plan.chunks, dtype=torch.uint8)
        self._group.receive(head, source)
        self._group.receive(sums, source)
        self._wanted[:-1] = torch.from_numpy(self._sums != sums.numpy().view(np.uint64))
        self._wanted[-1] = _xxh3(head.numpy()) != checksum
        self.packed = Packed(head.numpy().tobytes(), self._data, None)
        return not self._wanted.any()

    def mend(self, source: int) -> None:
        """Fetch again what differs."""
        chunks = self._wanted[:-1].nonzero().flatten().tolist()
        what = (
            [f"{len(chunks)} of {self._plan.chunks} chunks (first: {chunks[0]})"] if chunks else []
        )
        what += ["the description"] if self._wanted[-1] else []
        if what:
            self._log(f"state: {' and '.join(what)} not as rank {source} announced: fetched again")
        self._group.send(self._wanted, source)
        for chunk in chunks:
            piece = self._data[slice(*self._plan.span(chunk))]
            self._group.start_receive(piece, source, chunk).wait()
            self._sums[chunk] = _xxh3(piece.numpy())
            self.bytes_moved += piece.numel()


def hand_over(
    group: Group, source: int, receivers: Sequence[int], layout: Layout | None, log: Log,
    room: Callable[[int], torch.Tensor] = lambda size: torch.empty(size, dtype=torch.uint8),
) -> tuple[Packed | None, int]:  # fmt: skip
    """Bring the receivers to the source's state: everybody in the group calls this. `layout` is
    this rank's state if it is up to date, None at a receiver. `room(size)` gives a receiver the
    memory, flat uint8. Returns the state that came, verified, if this rank is a receiver, and the
    bytes that it sent or received. Raises GroupError, and StateError on every rank if no sender
    has a state that fits its own checksums."""
    plan = agree(group, source, receivers, layout, log)
    rank: _Sender | _Receiver
    if layout is None:
        rank = _Receiver(group, plan, room(plan.size), log)
    else:
        rank = _Sender(group, plan, layout)
    rank.move()
    for sender in plan.senders:
        for attempt in range(TRIES):
            if group.minimum(int(rank.settle(sender))):
                return rank.packed, rank.bytes_moved
            if attempt + 1 < TRIES:
                rank.mend(sender)
        log(f"state: what rank {sender} sends doesn't fit its own checksums")
    raise StateError(f"state: none of the ranks {list(plan.senders)} could send one undamaged")


def _make_room(going: deque[Pending], most: int) -> None:
    """Wait until less than `most` are under way."""
    while len(going) >= most:
        going.popleft().wait()


def _flat(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0)


def _xxh3(data: bytes | NDArray[np.uint8]) -> int:
    return xxhash.xxh3_64_intdigest(data)
