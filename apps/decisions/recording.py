"""How a plan becomes rows: which of its decisions are news, and what they change. Called by
`actions.record_plan` inside its transaction, with the cluster's row locked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Subquery

from apps.clusters.models import Cluster
from apps.core import events
from apps.decisions.choices import LIVE_STATES, CommandKind, CommandState
from apps.decisions.documents import (
    Row,
    moment,
    notices_to_json,
    pending_to_json,
    reasons_to_json,
    rejected_to_json,
    reservations_to_json,
    same_picture,
)
from apps.decisions.events import command_event, decision_event
from apps.decisions.models import Command, Decision, Plan
from apps.training.events import job_event
from apps.training.models import TrainingJob
from controlplane import engine as engine_package
from controlplane.engine import decisions as engine
from controlplane.engine.commands import Command as EngineCommand
from controlplane.engine.types import WorkloadKey

log = logging.getLogger(__name__)

#: a command that the cluster refused is not given again before this has passed
RETRY = timedelta(seconds=30)


class Recording:
    """One plan being recorded, at the moment that it was made for."""

    def __init__(self, cluster: Cluster, plan: engine.Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.now = datetime.fromtimestamp(plan.now, UTC)
        self.jobs = {key_of(job): job for job in jobs_with_last_decision(cluster)}
        self.live = {
            command.job_id: command
            for command in Command.objects.select_for_update().filter(
                job__cluster=cluster, state__in=sorted(LIVE_STATES)
            )
        }
        self.ended = {
            command.job_id: command
            for command in Command.objects.filter(
                job__cluster=cluster,
                state=CommandState.FAILED,
                finished_at__gte=self.now - RETRY,
            ).order_by("finished_at")
        }
        self.commands = self._commands()

    def write(
        self,
        *,
        epoch: int,
        inputs: Mapping[str, Any] | None,
        snapshot_at: datetime | None,
        duration_ms: float | None,
    ) -> list[Command]:
        picture = self._picture()
        news = [decision for decision in self.plan.decisions if self._is_news(decision)]
        self._move_jobs()
        last = self.cluster.plans.defer("inputs").order_by("-number").first()
        if not news and last is not None:
            kept = {name: getattr(last, name) for name in picture}
            if same_picture(kept, picture):
                changed = {name: rows for name, rows in picture.items() if rows != kept[name]}
                Plan.objects.filter(pk=last.pk).update(
                    last_seen_at=max(self.now, last.planned_at), lease_epoch=epoch, **changed
                )
                return []
        row = Plan.objects.create(
            cluster=self.cluster,
            number=last.number + 1 if last else 1,
            digest=self.plan.digest,
            engine_version=getattr(engine_package, "VERSION", "1"),
            snapshot_at=snapshot_at,
            planned_at=self.now,
            last_seen_at=self.now,
            duration_ms=duration_ms,
            lease_epoch=epoch,
            inputs=dict(inputs) if inputs is not None and self.commands else None,
            **picture,
        )
        decisions = Decision.objects.bulk_create([self._decision(row, made) for made in news])
        return self._issue(decisions, epoch)

    def _picture(self) -> dict[str, list[Row]]:
        """What the plan says of the cluster as a whole, as its row keeps it."""
        pending, explanations = pending_to_json(self.plan.pending)
        return {
            "pending": pending,
            "explanations": explanations,
            "reservations": reservations_to_json(self.plan.reservations),
            "notices": notices_to_json(self.plan.notices),
        }

    # -- what is news --------------------------------------------------------------------------

    def _commands(self) -> dict[WorkloadKey, EngineCommand]:
        """The plan's commands that may be issued: never a second one under way for a job."""
        found = {}
        for command in self.plan.commands:
            job = self.jobs.get(command.workload)
            live = self.live.get(job.pk) if job else None
            if job is None:
                log.warning("no job for the command on %s: it is planned again", command.workload)
            elif self._was_just_refused(job, command):
                log.info("%s: the same command failed a moment ago", command.workload)
            elif live is not None and not gives_way(live, command):
                log.warning("%s has a command under way (%s)", command.workload, live.pk)
            else:
                found[command.workload] = command
        return found

    def _was_just_refused(self, job: TrainingJob, command: EngineCommand) -> bool:
        """Whether the cluster refused the same command less than RETRY ago: asking it again at
        each event would fill the database and press the API server, and change nothing."""
        last = self.ended.get(job.pk)
        return (
            last is not None
            and (last.kind, last.to_replicas) == (str(command.kind), command.to_replicas)
            and last.finished_at is not None
            and self.now - last.finished_at < RETRY
        )

    def _is_news(self, decision: engine.Decision) -> bool:
        job = self.jobs.get(decision.workload)
        if job is None:
            return False
        if decision.workload in self.commands:
            return True
        before = (job.last_current, job.last_desired, job.last_code)
        return before != (decision.current, decision.desired, str(decision.reason.code))

    def _move_jobs(self) -> None:
        """What a decision says of its job: the planned size, and since when it waits."""
        moved = []
        for decision in self.plan.decisions:
            job = self.jobs.get(decision.workload)
            if job is None or job.finished:
                continue
            values = {
                "desired": decision.desired,
                "growth_wanted_since": moment(decision.growth_wanted_since),
                "short_since": moment(decision.short_since),
            }
            changed = [name for name, value in values.items() if getattr(job, name) != value]
            if not changed:
                continue
            for name in changed:
                setattr(job, name, values[name])
            job.save(update_fields=changed)
            if "desired" in changed:
                moved.append(job_event(job))
        events.publish_many(moved)

    # -- rows ----------------------------------------------------------------------------------

    def _decision(self, row: Plan, made: engine.Decision) -> Decision:
        return Decision(
            plan=row,
            job=self.jobs[made.workload],
            at=self.now,
            current=made.current,
            desired=made.desired,
            reason_code=str(made.reason.code),
            sentence=made.reason.sentence,
            numbers=dict(made.reason.numbers),
            rejected=rejected_to_json(made.rejected),
            share=made.share,
            expected_gain=made.expected_gain,
            unblock=reasons_to_json(made.unblock),
        )

    def _issue(self, decisions: list[Decision], epoch: int) -> list[Command]:
        """Rows for the plan's commands; one that hadn't begun gives way to a newer."""
        issued = []
        for decision in decisions:
            command = self.commands.get(key_of(decision.job))
            if command is not None:
                self._supersede(self.live.get(decision.job_id))
                issued.append(self._command(decision, command, epoch))
        events.publish_many([decision_event(decision) for decision in decisions])
        events.publish_many([command_event(command) for command in issued])
        return issued

    def _supersede(self, older: Command | None) -> None:
        if older is None:
            return
        older.state = CommandState.SUPERSEDED
        older.finished_at = self.now
        older.result_code = "superseded"
        older.result_sentence = "A newer plan wants another size."
        older.save(update_fields=["state", "finished_at", "result_code", "result_sentence"])
        events.publish_many([command_event(older)])

    def _command(self, decision: Decision, made: EngineCommand, epoch: int) -> Command:
        return Command.objects.create(
            decision=decision,
            job=decision.job,
            kind=str(made.kind),
            from_replicas=made.from_replicas,
            to_replicas=made.to_replicas,
            victims=list(made.victims),
            epoch=epoch,
            precondition=made.precondition,
            uid=made.uid,
            created_at=self.now,
        )


def gives_way(live: Command, newer: EngineCommand) -> bool:
    """Whether a command may end for a newer one: it hasn't begun, or it is a growth or a start that
    was written and a reclaim or a suspension turns it round (a reclaim never waits)."""
    if live.state == CommandState.PENDING:
        return True
    grows = live.to_replicas > live.from_replicas or live.kind == CommandKind.ADMIT
    return live.state == CommandState.APPLIED and grows and newer.to_replicas < live.to_replicas


def jobs_with_last_decision(cluster: Cluster) -> list[TrainingJob]:
    """Live jobs, each with the size and reason of its newest decision (None before the first)."""
    newest = Decision.objects.filter(job=OuterRef("pk")).order_by("-at", "-id")
    return list(
        TrainingJob.objects.filter(cluster=cluster, finished_at=None)
        .select_related("cluster", "policy")
        .annotate(
            last_current=Subquery(newest.values("current")[:1]),
            last_desired=Subquery(newest.values("desired")[:1]),
            last_code=Subquery(newest.values("reason_code")[:1]),
        )
    )


def key_of(job: TrainingJob) -> WorkloadKey:
    return WorkloadKey(job.kind, job.namespace, job.name)
