"""Carrying out a command: fenced, conditional, idempotent, each refusal with its reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.decisions.choices import CommandState
from apps.decisions.models import Command
from controlplane.cluster import names
from controlplane.cluster.interface import (
    Conflict,
    Forbidden,
    Invalid,
    Manifest,
    Unreachable,
    Verb,
)
from controlplane.cluster.resources import JOBS
from tests.fakes import FakeCluster
from tests.manifests import make_job_object
from tests.unit.workers.observations import publish
from tests.unit.workers.records import (
    make_cluster_row,
    make_command_row,
    make_job_row,
    make_policy_row,
)
from workers import mailbox
from workers.carry_out import GIVE_UP_S, MOST_CONFLICTS, STALE_S, Result, carry_out

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("broker")]

NOW = 1_796_083_300.0


class Scene:
    """One job of four on a cluster, and a command that makes it two."""

    def __init__(self, **job: Any) -> None:
        make_policy_row()
        self.row = make_cluster_row()
        self.job = make_job_row(self.row)
        self.command = make_command_row(self.job)
        self.cluster = FakeCluster("east")
        self.cluster.put(JOBS, make_job_object("llama", parallelism=4, **job))
        publish(self.row, self.cluster.get(JOBS, "ml", "llama"), at=NOW)
        self.cluster.calls.clear()

    def run(self) -> Any:
        return carry_out(str(self.command.pk), cluster=self.cluster, clock=lambda: NOW)

    @property
    def object(self) -> Manifest:
        return self.cluster.objects[JOBS][("ml", "llama")]

    @property
    def size(self) -> int:
        return int(self.object["spec"]["parallelism"])

    def fresh(self) -> Command:
        return Command.objects.get(pk=self.command.pk)


def test_a_command_is_written_once_with_its_name_and_epoch() -> None:
    scene = Scene()
    verdict = scene.run()
    assert (verdict.state, verdict.code) == (CommandState.APPLIED, Result.APPLIED)
    assert scene.size == 2
    notes = scene.object["metadata"]["annotations"]
    assert (notes[names.EPOCH], notes[names.COMMAND]) == ("3", str(scene.command.pk))
    row = scene.fresh()
    assert (row.state, row.attempts) == ("applied", 1)
    assert row.applied_at is not None
    assert scene.run() is None  # given again: nothing left to do
    assert scene.cluster.count(Verb.PATCH) == 1


def test_a_worker_killed_after_the_write_is_found_out() -> None:
    scene = Scene()
    scene.run()
    # the write reached the cluster, the record of it did not
    Command.objects.update(state="applying", applied_at=None)
    verdict = scene.run()
    assert (verdict.state, verdict.code) == (CommandState.APPLIED, Result.FOUND_APPLIED)
    assert scene.cluster.count(Verb.PATCH) == 1
    assert (scene.fresh().state, scene.fresh().attempts) == ("applied", 2)


def test_a_worker_killed_before_the_write_is_made_good() -> None:
    scene = Scene()
    Command.objects.update(state="applying", attempts=1)
    verdict = scene.run()
    assert verdict.code == Result.APPLIED
    assert scene.size == 2
    assert scene.fresh().attempts == 2


def test_an_old_epoch_cannot_write() -> None:
    scene = Scene()
    Cluster.objects.update(lease_epoch=4)
    assert scene.run() is None
    assert scene.cluster.calls == []
    row = scene.fresh()
    assert row.state == "refused"
    assert "epoch" in row.result_sentence
    assert scene.size == 4


def test_a_higher_epoch_on_the_object_is_never_overwritten() -> None:
    scene = Scene(annotations={names.EPOCH: "9"})
    verdict = scene.run()
    assert (verdict.state, verdict.code) == (CommandState.REFUSED, Result.HIGHER_EPOCH)
    assert "epoch 9" in verdict.sentence
    assert scene.size == 4
    assert scene.cluster.count(Verb.PATCH) == 0


def test_a_conflict_is_read_again_revalidated_and_retried() -> None:
    scene = Scene()
    edits = iter(["first", "second"])

    def somebody_edits() -> None:
        note = next(edits, None)
        if note is not None:
            changed = scene.cluster.get(JOBS, "ml", "llama")
            changed["metadata"]["labels"]["touched"] = note
            scene.cluster.put(JOBS, changed)

    scene.cluster.before_patch = somebody_edits
    verdict = scene.run()
    assert verdict.code == Result.APPLIED
    assert scene.size == 2
    assert scene.object["metadata"]["labels"]["touched"] == "second"  # their edits stay
    assert scene.cluster.count(Verb.PATCH) == 3


def test_a_conflict_that_changes_the_size_ends_the_command() -> None:
    scene = Scene()

    def somebody_resizes() -> None:
        changed = scene.cluster.get(JOBS, "ml", "llama")
        changed["spec"].update(parallelism=1, completions=1)
        scene.cluster.put(JOBS, changed)
        scene.cluster.before_patch = None

    scene.cluster.before_patch = somebody_resizes
    verdict = scene.run()
    assert verdict.state == CommandState.REFUSED
    assert scene.size == 1
    assert scene.fresh().result_sentence


def test_endless_conflicts_end() -> None:
    scene = Scene()
    error = Conflict("east", Verb.PATCH, "jobs.batch ml/llama", "the object was modified.")
    scene.cluster.fail(Verb.PATCH, *[error] * MOST_CONFLICTS)
    verdict = scene.run()
    assert (verdict.state, verdict.code) == (CommandState.REFUSED, Result.CONFLICTS_EXHAUSTED)
    assert scene.size == 4
    assert scene.cluster.count(Verb.PATCH) == MOST_CONFLICTS


def aged(scene: Scene, seconds: float) -> None:
    """The command was made so long ago."""
    at = datetime.fromtimestamp(NOW - seconds, UTC)
    Command.objects.filter(pk=scene.command.pk).update(created_at=at)


def test_a_command_without_an_answer_for_too_long_has_failed() -> None:
    """While it is under way no other job is asked to give what this one doesn't."""
    scene = Scene()
    aged(scene, GIVE_UP_S + 1)
    scene.cluster.fail(Verb.GET, Unreachable("east", Verb.GET, "jobs", "no answer"))
    verdict = scene.run()
    assert (verdict.state, verdict.code) == (CommandState.FAILED, Result.UNREACHABLE)
    assert scene.fresh().state == CommandState.FAILED
    assert scene.size == 4


@pytest.mark.parametrize("age", [STALE_S + 1, 600.0])
def test_an_old_snapshot_is_no_ground_for_a_write(age: float) -> None:
    scene = Scene()
    aged(scene, 1)
    publish(scene.row, scene.object, at=NOW - age)
    verdict = scene.run()
    assert (verdict.state, verdict.code) == (None, Result.NO_SNAPSHOT)
    assert scene.size == 4


def test_nothing_is_written_to_a_disabled_cluster() -> None:
    scene = Scene()
    Cluster.objects.update(enabled=False)
    assert scene.run() is None
    assert (scene.fresh().state, scene.fresh().result_code) == ("refused", "cluster_disabled")
    assert scene.size == 4


def test_no_answer_leaves_it_to_be_tried_again() -> None:
    scene = Scene()
    aged(scene, 1)
    scene.cluster.fail(Verb.GET, Unreachable("east", Verb.GET, "jobs", "no answer."))
    verdict = scene.run()
    assert (verdict.state, verdict.code) == (None, Result.UNREACHABLE)
    assert scene.fresh().state == "applying"
    assert "no answer" in scene.fresh().result_sentence
    assert scene.run().code == Result.APPLIED


def remove(scene: Scene) -> None:
    scene.cluster.objects[JOBS].clear()


def recreate(scene: Scene) -> None:
    scene.cluster.put(JOBS, make_job_object("llama", parallelism=4, uid="another"))


def unmanage(scene: Scene) -> None:
    changed = scene.cluster.get(JOBS, "ml", "llama")
    del changed["metadata"]["labels"]["concertina.dev/managed"]
    scene.cluster.put(JOBS, changed)


def damage(scene: Scene) -> None:
    changed = scene.cluster.get(JOBS, "ml", "llama")
    changed["metadata"]["annotations"][names.PODS_PER_REPLICA] = "several"
    scene.cluster.put(JOBS, changed)


def finish(scene: Scene) -> None:
    changed = scene.cluster.get(JOBS, "ml", "llama")
    changed["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    scene.cluster.put(JOBS, changed)


def forbid(scene: Scene) -> None:
    scene.cluster.fail(Verb.PATCH, Forbidden("east", Verb.PATCH, "jobs", "no such right."))


def reject(scene: Scene) -> None:
    scene.cluster.fail(Verb.PATCH, Invalid("east", Verb.PATCH, "jobs", "a webhook says no."))


REFUSALS: dict[str, tuple[Callable[[Scene], None], CommandState, str]] = {
    "deleted": (remove, CommandState.REFUSED, "no longer on the cluster"),
    "created anew": (recreate, CommandState.REFUSED, "another object"),
    "no longer managed": (unmanage, CommandState.REFUSED, ""),
    "annotations malformed": (damage, CommandState.REFUSED, "'several'"),
    "finished": (finish, CommandState.REFUSED, ""),
    "forbidden": (forbid, CommandState.FAILED, "no such right"),
    "rejected by a webhook": (reject, CommandState.FAILED, "a webhook says no"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_leave_nothing_behind(name: str) -> None:
    change, state, words = REFUSALS[name]
    scene = Scene()
    change(scene)
    verdict = scene.run()
    assert verdict.state == state
    assert words in verdict.sentence
    row = scene.fresh()
    assert row.state == state
    assert row.result_code
    assert row.result_sentence
    assert row.finished_at is not None
    if ("ml", "llama") in scene.cluster.objects[JOBS]:
        assert scene.size == 4
        assert names.COMMAND not in scene.object["metadata"]["annotations"]


def test_without_any_snapshot_nothing_is_written() -> None:
    scene = Scene()
    aged(scene, 1)
    mailbox.client().flushall()
    verdict = scene.run()
    assert (verdict.state, verdict.code) == (None, Result.NO_SNAPSHOT)
    assert scene.size == 4
