"""Commands move by a table, are fenced by the lease's epoch, and are never carried out twice."""

from __future__ import annotations

from itertools import product

import pytest

from apps.clusters.models import Cluster
from apps.decisions import actions
from apps.decisions.choices import LIVE_STATES, TRANSITIONS, CommandState
from apps.decisions.models import Command
from apps.training.models import TrainingJob
from tests.rows import make_cluster, make_command, make_job

pytestmark = pytest.mark.django_db

S = CommandState
ENDS = [S.DONE, S.FAILED, S.TIMED_OUT, S.SUPERSEDED, S.REFUSED]


def test_the_table_is_closed() -> None:
    assert set(TRANSITIONS) == set(S)
    for state in S:
        assert (TRANSITIONS[state] == frozenset()) is (state not in LIVE_STATES)


WANT_FINISH = {
    S.PENDING: {S.FAILED, S.TIMED_OUT, S.SUPERSEDED, S.REFUSED},
    S.APPLYING: {S.DONE, S.FAILED, S.TIMED_OUT, S.SUPERSEDED, S.REFUSED},
    S.APPLIED: {S.DONE, S.FAILED, S.TIMED_OUT, S.SUPERSEDED},
}


@pytest.mark.parametrize(("state", "end"), list(product(S, ENDS)))
def test_finish(state: CommandState, end: CommandState) -> None:
    command = make_command(make_job(), state=state)
    if end in WANT_FINISH.get(state, set()):
        actions.finish_command(command.pk, end, "code", "Because.")
        found = Command.objects.get()
        assert (found.state, found.result_code, found.result_sentence) == (end, "code", "Because.")
        assert found.finished_at is not None
    elif end == state:
        actions.finish_command(command.pk, end, "again", "Said again.")
        assert Command.objects.get().result_code == ""
    else:
        with pytest.raises(actions.IllegalTransition, match=f"is {state} and can't become {end}"):
            actions.finish_command(command.pk, end, "code", "Because.")
        assert Command.objects.get().state == state


@pytest.mark.parametrize("state", list(S))
def test_begin(state: CommandState) -> None:
    command = make_command(make_job(), state=state)
    begun = actions.begin_command(command.pk)
    found = Command.objects.get()
    if state in (S.PENDING, S.APPLYING):  # APPLYING: its worker was killed
        assert begun is not None
        assert (found.state, found.attempts) == (S.APPLYING, 1)
    else:
        assert begun is None
        assert (found.state, found.attempts) == (state, 0)


@pytest.mark.parametrize("lease_epoch", [0, 2])
def test_a_command_of_another_epoch_may_not_be_written(lease_epoch: int) -> None:
    command = make_command(make_job(make_cluster(lease_epoch=1)))
    Cluster.objects.update(lease_epoch=lease_epoch)
    assert actions.begin_command(command.pk) is None
    found = Command.objects.get()
    assert (found.state, found.result_code, found.attempts) == (S.REFUSED, "old_epoch", 0)
    assert f"the lease is at epoch {lease_epoch}" in found.result_sentence


def test_a_written_command_is_recorded_although_the_lease_has_moved() -> None:
    command = make_command(make_job())
    actions.begin_command(command.pk)
    Cluster.objects.update(lease_epoch=9)
    actions.mark_applied(command.pk, epoch=1, code="applied", sentence="Written.")
    found = Command.objects.get()
    assert (found.state, found.result_code) == (S.APPLIED, "applied")
    assert found.applied_at == TrainingJob.objects.get().last_resize_at


@pytest.mark.parametrize(
    ("state", "epoch", "want"),
    [
        (S.APPLYING, 2, actions.StaleEpoch),
        (S.PENDING, 1, actions.IllegalTransition),
        (S.REFUSED, 1, actions.IllegalTransition),
    ],
)
def test_applied_is_refused(state: CommandState, epoch: int, want: type[Exception]) -> None:
    command = make_command(make_job(), state=state)
    with pytest.raises(want):
        actions.mark_applied(command.pk, epoch=epoch, code="applied", sentence="Written.")
    assert Command.objects.get().state == state
    assert TrainingJob.objects.get().last_resize_at is None


def test_applied_twice_is_applied_once() -> None:
    command = make_command(make_job(), state=S.APPLYING)
    first = actions.mark_applied(command.pk, epoch=1, code="applied", sentence="Written.")
    again = actions.mark_applied(command.pk, epoch=1, code="found_applied", sentence="Found.")
    assert (again.applied_at, again.result_code) == (first.applied_at, "applied")


def test_an_attempt_is_noted_without_a_change_of_state() -> None:
    command = make_command(make_job(), state=S.APPLYING)
    actions.note_attempt(command.pk, "conflict", "Somebody else wrote it.")
    assert Command.objects.values_list("state", "result_code").get() == ("applying", "conflict")
    done = make_command(make_job(make_cluster("west")), state=S.DONE)
    actions.note_attempt(done.pk, "conflict", "Too late.")
    assert Command.objects.get(pk=done.pk).result_code == ""


def test_a_command_that_isnt_there() -> None:
    with pytest.raises(Command.DoesNotExist, match="There is no command"):
        actions.begin_command("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
