"""Into a quorum: connect its group, then bring everybody to the source's state."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer_runtime import checkpoint
from trainer_runtime.client import Client
from trainer_runtime.group import Group, GroupError
from trainer_runtime.options import TrainerOptions
from trainer_runtime.protocol import Quorum
from trainer_runtime.replica import ReplicaState
from trainer_runtime.state import Packed

Log = Callable[[str], None]

# Bytes of description and data, and the checksum, which needs all 64 bits.
_SIZES = struct.Struct("<QQQ")


@dataclass(slots=True)
class Entered:
    """How it went: monotonic times, and `bytes_moved` of state sent or received by this rank.
    `copied` says that this replica took over a peer's state."""

    connected_at: float
    restored_at: float
    bytes_moved: int = 0
    copied: bool = False


def enter(
    quorum: Quorum, group: Group, client: Client, state: ReplicaState, options: TrainerOptions,
    log: Log,
) -> Entered:  # fmt: skip
    """Raises GroupError (also when the quorum is superseded), StateError for a damaged state."""
    group.connect(
        (client.address[0], quorum.store_port), quorum.prefix, host=client.local_host,
        setup_s=options.setup_timeout, timeout_s=options.group_timeout,
        superseded=lambda: client.superseded is not None,
    )  # fmt: skip
    entered = Entered(connected_at=time.monotonic(), restored_at=0.0)
    me = quorum.members[group.rank]
    source = quorum.rank(quorum.source)
    if quorum.origin == "start" and group.rank == source:
        start(state, options.checkpoint_dir, quorum.last_step, log)
    receivers = [rank for rank, peer in enumerate(quorum.members) if peer.copies]
    if group.rank == source and receivers:
        packed = state.pack()
        for rank in receivers:
            entered.bytes_moved += send(group, packed, rank)
    if me.copies:
        packed = receive(group, source)
        with client.locked():
            client.claim.live = False  # until all of it is in place
            state.load(packed)
        entered.bytes_moved, entered.copied = packed.size_bytes, True
    with client.locked():
        claim = client.claim
        claim.live, claim.state_epoch, claim.step = True, quorum.epoch, state.counters.step
    if client.superseded is not None:
        raise GroupError(f"epoch {quorum.epoch}: superseded while the state was restored")
    entered.restored_at = time.monotonic()
    return entered


def start(state: ReplicaState, folder: Path | None, last_step: int, log: Log) -> None:
    """Nobody has a live state: the newest whole checkpoint, or an explicit fresh start."""
    found = checkpoint.newest(folder) if folder is not None else None
    if found is not None and folder is not None:
        step, packed, problems = found
        for problem in problems:
            log(f"checkpoint passed over: {problem}")
        state.load(packed)
        log(f"resumed at step {step} from {checkpoint.path_of(folder, step)}")
        if last_step > step:
            log(f"steps {step + 1} to {last_step} were lost with the replicas that held them")
    elif last_step > 0:
        log(f"fresh start at step 0: {last_step} committed steps are lost, there is no checkpoint")
    else:
        log("fresh start at step 0: no checkpoint")
    state.begin_attempt()


def send(group: Group, packed: Packed, to: int) -> int:
    """Sizes and checksum first, then description and data. Returns the bytes sent."""
    assert packed.checksum is not None
    sizes = _SIZES.pack(len(packed.head), packed.data.numel(), packed.checksum)
    group.send(torch.frombuffer(bytearray(sizes), dtype=torch.uint8), to)
    group.send(torch.frombuffer(bytearray(packed.head), dtype=torch.uint8), to)
    group.send(packed.data, to)
    return packed.size_bytes


def receive(group: Group, source: int) -> Packed:
    """What `send` sent, not yet verified: `ReplicaState.load` does that first of all."""
    sizes = torch.empty(_SIZES.size, dtype=torch.uint8)
    group.receive(sizes, source)
    head_size, data_size, checksum = _SIZES.unpack(sizes.numpy().tobytes())
    head = torch.empty(head_size, dtype=torch.uint8)
    group.receive(head, source)
    data = torch.empty(data_size, dtype=torch.uint8)
    group.receive(data, source)
    return Packed(head.numpy().tobytes(), data, checksum)
