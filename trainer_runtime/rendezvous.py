"""Into a quorum: connect its group, then bring everybody to the source's state."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime import checkpoint
from trainer_runtime.client import Client
from trainer_runtime.group import Group, GroupError
from trainer_runtime.options import TrainerOptions
from trainer_runtime.protocol import Quorum
from trainer_runtime.replica import ReplicaState
from trainer_runtime.state import StateError, lay_out
from trainer_runtime.transfer import hand_over

Log = Callable[[str], None]


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
        torn = not client.claim.live and state.counters.step > 0
        start(state, options.checkpoint_dir, quorum.last_step, log, torn=torn)
    receivers = [rank for rank, peer in enumerate(quorum.members) if peer.copies]
    if receivers:
        layout = None if me.copies else lay_out(state.tree())
        packed, entered.bytes_moved = hand_over(group, source, receivers, layout, log)
        if packed is not None:
            with client.locked():
                client.claim.live = False  # until all of it is in place
                state.load(packed)
            entered.copied = True
    with client.locked():
        claim = client.claim
        claim.live, claim.state_epoch, claim.step = True, quorum.epoch, state.counters.step
    if client.superseded is not None:
        raise GroupError(f"epoch {quorum.epoch}: superseded while the state was restored")
    entered.restored_at = time.monotonic()
    return entered


def start(
    state: ReplicaState, folder: Path | None, last_step: int, log: Log, *, torn: bool = False
) -> None:
    """Nobody has a live state: the newest whole checkpoint, or an explicit fresh start. Raises
    StateError if there is no checkpoint and this replica's own state is `torn`, neither that of a
    step nor fresh: only another process can start afresh."""
    found = checkpoint.newest(folder) if folder is not None else None
    if found is not None and folder is not None:
        step, packed, problems = found
        for problem in problems:
            log(f"checkpoint passed over: {problem}")
        state.load(packed)
        log(f"resumed at step {step} from {checkpoint.path_of(folder, step)}")
        if last_step > step:
            log(f"steps {step + 1} to {last_step} were lost with the replicas that held them")
    elif torn:
        raise StateError(
            f"state after step {state.counters.step} is incomplete, no peer has a whole one, and "
            "there is no checkpoint (CONCERTINA_CHECKPOINT_DIR): start this replica again"
        )
    elif last_step > 0:
        log(f"fresh start at step 0: {last_step} committed steps are lost, there is no checkpoint")
    else:
        log("fresh start at step 0: no checkpoint")
    state.begin_attempt()
