"""Writes of plans, decisions and commands: one verb a function, one transaction each.

Plans, decisions and commands are themselves the record of what the loop did and why; they have no
audit entries beside them.

Fencing: the right to act is checked against the cluster's lease, under a lock on its row
(`record_plan`, `begin_command`). Facts are not fenced: that a command was written, came true or
failed is recorded whoever holds the lease by then. Locks are taken in one order: cluster, command.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.core import events
from apps.decisions.choices import LIVE_STATES, TRANSITIONS, CommandState
from apps.decisions.events import command_event
from apps.decisions.models import Command
from apps.decisions.recording import Recording
from apps.training.models import TrainingJob
from controlplane.engine.decisions import Plan as EnginePlan

CommandId = uuid.UUID | str


class StaleEpoch(Exception):
    """The lease has passed to another: what carries this epoch may no longer decide or write."""


class IllegalTransition(Exception):
    """A command can't go from its state to the wanted one."""


def record_plan(
    cluster: Cluster,
    plan: EnginePlan,
    *,
    epoch: int,
    inputs: Mapping[str, Any] | None = None,
    snapshot_at: datetime | None = None,
    duration_ms: float | None = None,
) -> list[Command]:
    """Record what a plan decided; returns the new commands, to be carried out after the commit.

    A decision is recorded when it differs from the job's last (size, or reason code) or has a
    command; a plan when it has such decisions, or other pending demand. Otherwise only the last
    plan's `last_seen_at` moves. `inputs` are kept for plans with commands. Raises StaleEpoch when
    `epoch` isn't the lease's.
    """
    with transaction.atomic():
        locked = Cluster.objects.select_for_update().get(pk=cluster.pk)
        if locked.lease_epoch != epoch:
            raise StaleEpoch(
                f"A plan of epoch {epoch} for {cluster.name} was dropped: the lease is at epoch "
                f"{locked.lease_epoch}."
            )
        recording = Recording(locked, plan)
        return recording.write(
            epoch=epoch, inputs=inputs, snapshot_at=snapshot_at, duration_ms=duration_ms
        )


def begin_command(command_id: CommandId) -> Command | None:
    """Take a command to carry it out: it is `applying` from here on.

    None when there is nothing left to do: it has been written or has ended, or its epoch is over
    (then it is refused). A command whose worker was killed is `applying` and may be taken again.
    """
    with transaction.atomic():
        cluster, command = _locked(command_id)
        if command.state not in (CommandState.PENDING, CommandState.APPLYING):
            return None
        if not cluster.enabled:
            sentence = f"{cluster.name} is disabled: nothing is written to it."
            _move(command, CommandState.REFUSED, code="cluster_disabled", sentence=sentence)
            return None
        if command.epoch != cluster.lease_epoch:
            _move(
                command,
                CommandState.REFUSED,
                code="old_epoch",
                sentence=f"Made under epoch {command.epoch}; the lease is at epoch "
                f"{cluster.lease_epoch}. It is planned again.",
            )
            return None
        command.attempts += 1
        _move(command, CommandState.APPLYING)
        return command


def mark_applied(command_id: CommandId, *, epoch: int, code: str, sentence: str) -> Command:
    """The command was written to the cluster. Saying it again changes nothing.

    Raises StaleEpoch for an epoch that isn't the command's, IllegalTransition from another state.
    """
    with transaction.atomic():
        _, command = _locked(command_id)
        if command.epoch != epoch:
            raise StaleEpoch(f"Command {command.pk} is of epoch {command.epoch}, not {epoch}.")
        if command.state == CommandState.APPLIED:
            return command
        now = timezone.now()
        command.applied_at = now
        _move(command, CommandState.APPLIED, code=code, sentence=sentence)
        TrainingJob.objects.filter(pk=command.job_id).update(last_resize_at=now)
        return command


def finish_command(command_id: CommandId, state: CommandState, code: str, sentence: str) -> Command:
    """End a command as done, failed, timed out, superseded or refused, with the reason.

    Saying it again changes nothing. Raises IllegalTransition when it can't end so.
    """
    with transaction.atomic():
        _, command = _locked(command_id)
        if command.state != state:
            _move(command, CommandState(state), code=code, sentence=sentence)
        return command


def note_attempt(command_id: CommandId, code: str, sentence: str) -> Command:
    """Keep what came of an attempt that didn't end the command (a conflict, no answer)."""
    with transaction.atomic():
        _, command = _locked(command_id)
        if command.state in LIVE_STATES:
            command.result_code, command.result_sentence = code[:64], sentence
            command.save(update_fields=["result_code", "result_sentence"])
            events.publish_many([command_event(command)])
        return command


def _locked(command_id: CommandId) -> tuple[Cluster, Command]:
    """The cluster's row and the command's, locked in this order. Raises Command.DoesNotExist."""
    cluster_id = (
        Command.objects.filter(pk=command_id).values_list("job__cluster_id", flat=True).first()
    )
    if cluster_id is None:
        raise Command.DoesNotExist(f"There is no command {command_id}.")
    cluster = Cluster.objects.select_for_update().get(pk=cluster_id)
    command = (
        Command.objects.select_for_update(of=("self",))
        .select_related("job__cluster", "job__policy", "decision")
        .get(pk=command_id)
    )
    return cluster, command


def _move(command: Command, to: CommandState, *, code: str = "", sentence: str = "") -> None:
    """Change the state by the transition table, and tell the pages. Rows must be locked."""
    before = CommandState(command.state)
    if to not in TRANSITIONS[before]:
        raise IllegalTransition(f"Command {command.pk} is {before} and can't become {to}.")
    command.state = to
    if code:
        command.result_code, command.result_sentence = code[:64], sentence
    if to not in LIVE_STATES:
        command.finished_at = timezone.now()
    command.save(
        update_fields=[
            "state",
            "attempts",
            "result_code",
            "result_sentence",
            "applied_at",
            "finished_at",
        ]
    )
    events.publish_many([command_event(command)])
