"""Carry out one command: fenced, conditional, idempotent.

A command may be given to a worker twice (it was killed, or the broker's visibility time-out
passed), and a worker may wake up long after it lost its right to write. What keeps a resize from
being applied twice or by the wrong hand:

1. the state moves to `applying` in a transaction that locks the command and compares its epoch
   with the cluster's lease (an old epoch is refused);
2. the object itself says which command and which epoch wrote it last: the same command is found
   applied, a higher epoch is never overwritten;
3. the write has the resourceVersion that was read and revalidated just before; a 409 means read,
   revalidate and try again, a bounded number of times, each one recorded.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from enum import StrEnum

from apps.decisions import actions
from apps.decisions.choices import CommandState
from apps.decisions.models import Command as CommandRow
from controlplane import wiring
from controlplane.cluster import names
from controlplane.cluster.interface import (
    Cluster,
    ClusterError,
    Conflict,
    Manifest,
    NotFound,
    Unreachable,
    metadata,
)
from controlplane.cluster.kinds import elastic_kind
from controlplane.cluster.kinds.base import (
    ElasticKind,
    Malformed,
    PriorityTable,
    Stamp,
    Write,
    command_of,
    epoch_of,
)
from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.reasons import Reason, ReasonCode
from controlplane.engine.serialize import snapshot_from_json
from controlplane.engine.snapshot import ClusterSnapshot, Workload
from controlplane.engine.types import WorkloadKey
from controlplane.engine.validation import still_valid
from workers import mailbox

log = logging.getLogger(__name__)

MOST_CONFLICTS = 5
#: a command that can't be written for so long has failed; what it was for is planned again
GIVE_UP_S = 60.0
#: a snapshot that is older is no ground for a write
STALE_S = 30.0


class Result(StrEnum):
    """Codes kept with a command, beside the engine's reason codes."""

    APPLIED = "applied"
    FOUND_APPLIED = "found_applied"
    CONFLICT = "conflict"
    CONFLICTS_EXHAUSTED = "conflicts_exhausted"
    WORKLOAD_GONE = "workload_gone"
    HIGHER_EPOCH = "higher_epoch"
    NOT_ELASTIC = "not_elastic"
    NOT_MANAGED = "not_managed"
    MALFORMED = "malformed"
    NO_SNAPSHOT = "no_snapshot"
    CLUSTER_REFUSED = "cluster_refused"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an attempt ended: the state that the command moves to, and why.

    `state` None: it stays `applying`, to be tried again (by redelivery or the next tick).
    """

    state: CommandState | None
    code: str
    sentence: str


def carry_out(
    command_id: str, *, cluster: Cluster | None = None, clock: wiring.Clock | None = None
) -> Verdict | None:
    """Write a recorded command to its cluster. None when there is nothing (left) to do."""
    now = clock or wiring.clock()
    row = actions.begin_command(command_id)
    if row is None:
        return None
    target = cluster or wiring.cluster_for(row.job.cluster)
    verdict = _attempt(row, target, now)
    _record(row, verdict)
    log.info("command %s: %s %s", command_id, verdict.code, verdict.sentence)
    return verdict


def _record(row: CommandRow, verdict: Verdict) -> None:
    """Keep what came of it. Another worker may have got there first: then its word stands."""
    try:
        _move(row, verdict)
    except actions.IllegalTransition as error:
        log.warning("%s", error)


def _move(row: CommandRow, verdict: Verdict) -> None:
    if verdict.state is CommandState.APPLIED:
        actions.mark_applied(row.pk, epoch=row.epoch, code=verdict.code, sentence=verdict.sentence)
    elif verdict.state is not None:
        actions.finish_command(row.pk, verdict.state, verdict.code, verdict.sentence)
    else:
        actions.note_attempt(row.pk, verdict.code, verdict.sentence)


def _attempt(row: CommandRow, cluster: Cluster, now: wiring.Clock) -> Verdict:
    """Read, check, write; again on a conflict."""
    key = WorkloadKey(row.job.kind, row.job.namespace, row.job.name)
    kind = elastic_kind(key.kind)
    if kind is None:
        return Verdict(CommandState.FAILED, Result.NOT_ELASTIC, f"{key.kind} can't be resized.")
    for _ in range(MOST_CONFLICTS):
        try:
            verdict = _write_once(row, key, kind, cluster, now)
        except Conflict as error:
            actions.note_attempt(row.pk, Result.CONFLICT, str(error))
            continue
        except NotFound:
            return Verdict(
                CommandState.REFUSED, Result.WORKLOAD_GONE, f"{key} is no longer on the cluster."
            )
        except Unreachable as error:
            return _later_or_never(row, Result.UNREACHABLE, str(error), now())
        except ClusterError as error:
            return Verdict(CommandState.FAILED, Result.CLUSTER_REFUSED, str(error))
        except Malformed as error:
            return Verdict(CommandState.REFUSED, Result.MALFORMED, str(error))
        return verdict
    return Verdict(
        CommandState.REFUSED,
        Result.CONFLICTS_EXHAUSTED,
        f"{key} changed {MOST_CONFLICTS} times while it was written; it is planned again.",
    )


def _write_once(
    row: CommandRow, key: WorkloadKey, kind: ElasticKind, cluster: Cluster, now: wiring.Clock
) -> Verdict:
    """One read, one revalidation, one write. Raises ClusterError, Malformed."""
    manifest = cluster.get(kind.resource, key.namespace, key.name)
    if str(metadata(manifest).get("uid")) != row.job.uid:
        sentence = f"{key} is another object of that name now."
        return Verdict(CommandState.REFUSED, Result.WORKLOAD_GONE, sentence)
    if command_of(manifest) == str(row.pk):
        sentence = f"{key} already carries this command: an earlier attempt wrote it."
        return Verdict(CommandState.APPLIED, Result.FOUND_APPLIED, sentence)
    if epoch_of(manifest) > row.epoch:
        sentence = (
            f"{key} was written under epoch {epoch_of(manifest)}; this command has {row.epoch}."
        )
        return Verdict(CommandState.REFUSED, Result.HIGHER_EPOCH, sentence)
    refusal = revalidate(row, key, kind, manifest, now())
    if refusal is not None:
        return refusal
    for write in writes_of(row, kind, manifest):
        cluster.patch(
            write.resource, write.namespace, write.name, write.body, patch_type=write.patch_type
        )
    sentence = f"{key} was written from {row.from_replicas} to {row.to_replicas} replicas."
    return Verdict(CommandState.APPLIED, Result.APPLIED, sentence)


def _later_or_never(row: CommandRow, code: Result, sentence: str, now: float) -> Verdict:
    """Try again, until the command is too old: while it lives it stands in the way of others."""
    too_old = now - row.created_at.timestamp() > GIVE_UP_S
    return Verdict(CommandState.FAILED if too_old else None, code, sentence)


def revalidate(
    row: CommandRow, key: WorkloadKey, kind: ElasticKind, manifest: Manifest, now: float
) -> Verdict | None:
    """Why the command may not be written any more; None when it may.

    Checked on the newest snapshot, with the object as it was read just now in its place.
    """
    observation = mailbox.newest(str(row.job.cluster_id))
    if observation is None or not observation.complete or now - observation.taken_at > STALE_S:
        sentence = "no complete and recent snapshot of the cluster is at hand."
        return _later_or_never(row, Result.NO_SNAPSHOT, sentence, now)
    snapshot = snapshot_from_json(observation.snapshot)
    workload = kind.observe(manifest, _priorities(snapshot))
    if not workload.managed:
        sentence = f"{key} is no longer managed: its label {names.MANAGED} was taken away."
        return Verdict(CommandState.REFUSED, Result.NOT_MANAGED, sentence)
    command = engine_command(row, key, workload.resource_version)
    reason = still_valid(command, _with_workload(snapshot, workload), now)
    if reason is None:
        return None
    return Verdict(CommandState.REFUSED, str(reason.code), reason.sentence)


def engine_command(row: CommandRow, key: WorkloadKey, precondition: str) -> Command:
    """The engine's command that a row stands for, on the given version of the object."""
    reason = Reason(
        ReasonCode(row.decision.reason_code), row.decision.sentence, row.decision.numbers
    )
    return Command(
        kind=CommandKind(row.kind),
        workload=key,
        from_replicas=row.from_replicas,
        to_replicas=row.to_replicas,
        victims=tuple(row.victims),
        precondition=precondition,
        reason=reason,
        uid=row.uid or row.job.uid,
    )


def writes_of(row: CommandRow, kind: ElasticKind, manifest: Manifest) -> tuple[Write, ...]:
    stamp = Stamp(epoch=row.epoch, command=str(row.pk))
    if row.kind == CommandKind.ADMIT:
        return kind.admit(manifest, row.to_replicas, stamp)
    return kind.resize(manifest, row.to_replicas, tuple(row.victims), stamp)


def _with_workload(snapshot: ClusterSnapshot, fresh: Workload) -> ClusterSnapshot:
    others = tuple(w for w in snapshot.workloads if w.key != fresh.key)
    return dataclasses.replace(snapshot, workloads=(*others, fresh))


def _priorities(snapshot: ClusterSnapshot) -> PriorityTable:
    """Class values as the snapshot's workloads show them: good enough to compare a command."""
    values = {w.priority_class: w.priority for w in snapshot.workloads}
    return PriorityTable(values=values, preemption={})
