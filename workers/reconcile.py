"""Reconcile one cluster: the newest snapshot in, one recorded plan and its commands out.

A pipeline of small steps. Everything that is written goes through the apps' actions; the plan and
its commands are recorded in one transaction, and carried out only after it has committed.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from django.db import transaction
from django.db.models import Max

from apps.clusters import actions as cluster_actions
from apps.clusters.models import CapacitySample, Cluster
from apps.decisions import actions as decision_actions
from apps.decisions.choices import CommandState
from apps.decisions.models import Command as CommandRow
from apps.priorities import actions as priority_actions
from apps.training import actions as training_actions
from apps.training.models import TrainingJob
from controlplane import wiring
from controlplane.engine.plan import Plan, plan
from controlplane.engine.policy import PolicySet
from controlplane.engine.serialize import policies_to_json, snapshot_from_json, snapshot_to_json
from controlplane.engine.snapshot import ClusterSnapshot
from workers import gather, mailbox
from workers.verify import Outcome, Written, check

log = logging.getLogger(__name__)

#: a snapshot that is older than this is no ground for a decision (its watcher republishes at
#: least every REFRESH_S = 2 s)
STALE_S = 10.0
#: a reconcile whose worker was killed holds up the next ones for no longer than this; one that
#: takes longer may overlap with another, which the database's locks and constraints allow for
LOCK_S = 6
#: written commands that nothing has confirmed are looked at again after this long
VERIFY_S = 1.0
#: capacity is sampled at most this often
SAMPLE_S = 1.0
#: a job's missing Secret is asked for again after this long
SECRET_RETRY_S = 5
#: how long a growth may take at least: nodes boot and images are pulled, whatever a fault may take
GROWTH_TIMEOUT_S = 300.0
#: pods get this much longer than the trainer's own grace to leave
LEAVE_MARGIN_S = 30.0

_VERDICTS = {
    Outcome.DONE: CommandState.DONE,
    Outcome.TIMED_OUT: CommandState.TIMED_OUT,
    Outcome.SUPERSEDED: CommandState.SUPERSEDED,
}


class Skipped(StrEnum):
    """Why nothing was decided."""

    DISABLED = "the cluster is disabled"
    NO_SNAPSHOT = "there is no snapshot"
    STALE = "the snapshot is stale"
    PARTIAL = "the snapshot is partial"
    OLD_EPOCH = "the lease has passed to another watcher"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What came of it: `skipped`, or the plan and the ids of its new commands."""

    skipped: Skipped | None = None
    plan: Plan | None = None
    commands: tuple[str, ...] = ()


def reconcile_wanted(cluster_id: str, epoch: int) -> list[Reconciled]:
    """Reconcile until nothing has changed since the last time began; one at a time a cluster.

    When another task is at it, that one sees that more is wanted and goes on.
    """
    mailbox.reconcile_began(cluster_id)
    done: list[Reconciled] = []
    # asked again after each release: whoever found the lock held has gone and relies on us
    while mailbox.is_wanted(cluster_id):
        with mailbox.exclusive(f"reconcile:{cluster_id}", LOCK_S) as held:
            if not held:
                return done
            if mailbox.take_wanted(cluster_id):
                done.append(reconcile_once(cluster_id, epoch))
    return done


def reconcile_once(
    cluster_id: str, epoch: int | None = None, *, clock: wiring.Clock | None = None
) -> Reconciled:
    """One cycle on the newest snapshot. `epoch` None: that of the snapshot."""
    began = time.monotonic()
    now = (clock or wiring.clock())()
    cluster = Cluster.objects.get(pk=cluster_id)
    observation = mailbox.newest(cluster_id)
    skipped = why_not(cluster, observation, epoch, now)
    if skipped is not None or observation is None:
        log.info("nothing decided for %s: %s", cluster.name, skipped)
        return Reconciled(skipped=skipped)
    observed = snapshot_from_json(observation.snapshot)
    project(cluster, observed, observation)
    waiting = verify(cluster, observed, now)
    snapshot = gather.inputs(observed, cluster, now)
    policies = gather.load_policies(cluster)
    made = plan(snapshot, policies, now)
    duration_ms = (time.monotonic() - began) * 1000
    sample_at = next_sample_at(cluster)
    commands = record(
        cluster,
        made,
        snapshot,
        policies,
        epoch=observation.epoch,
        duration_ms=duration_ms,
        sample=snapshot.taken_at >= sample_at,
    )
    if commands is None:
        return Reconciled(skipped=Skipped.OLD_EPOCH)
    due = [
        made.next_wake,
        None if snapshot.taken_at >= sample_at else sample_at,
        # a trainer's confirmation is no event of the cluster: look again for it
        now + VERIFY_S if waiting else None,
    ]
    mailbox.set_next_wake(cluster_id, min((at for at in due if at is not None), default=None))
    return Reconciled(plan=made, commands=commands)


def next_sample_at(cluster: Cluster) -> float:
    """When the next capacity sample may be taken: a burst of events is not a burst of samples."""
    last = CapacitySample.objects.filter(cluster=cluster).aggregate(at=Max("at"))["at"]
    return last.timestamp() + SAMPLE_S if last is not None else 0.0


def why_not(
    cluster: Cluster, observation: mailbox.Observation | None, epoch: int | None, now: float
) -> Skipped | None:
    """The reason not to decide anything; None when there is none."""
    if not cluster.enabled:
        return Skipped.DISABLED
    if observation is None:
        return Skipped.NO_SNAPSHOT
    if observation.epoch != cluster.lease_epoch or (epoch or 0) > observation.epoch:
        return Skipped.OLD_EPOCH
    if now - observation.taken_at > STALE_S:
        return Skipped.STALE
    if not observation.complete:
        return Skipped.PARTIAL
    return None


def project(cluster: Cluster, observed: ClusterSnapshot, observation: mailbox.Observation) -> None:
    """Bring our rows of the cluster's jobs and priority classes up to what was observed."""
    at = datetime.fromtimestamp(observed.taken_at, UTC)
    priority_actions.sync_observed(observation.priority_classes)
    training_actions.sync_jobs(cluster, observed, problems=observation.problems, at=at)
    for job_id in jobs_without_token(cluster):
        if mailbox.once_in(f"secret:{job_id}", SECRET_RETRY_S):
            queue_secret(job_id)


def jobs_without_token(cluster: Cluster) -> list[str]:
    """Live jobs that no token was ever issued for: their pods wait for the Secret with it."""
    rows = TrainingJob.objects.filter(cluster=cluster, finished_at=None, tokens=None)
    return [str(pk) for pk in rows.values_list("pk", flat=True)]


def verify(cluster: Cluster, observed: ClusterSnapshot, now: float) -> int:
    """Finish the written commands that have come true, or have had their time.

    Returns how many still wait.
    """
    waiting = 0
    rows = CommandRow.objects.filter(
        job__cluster=cluster, state=CommandState.APPLIED
    ).select_related("job", "job__policy")
    for row in rows:
        jobs = {gather.key_of(row.job): row.job}
        report = gather.reports_of(jobs, now).get(gather.key_of(row.job))
        found = check(written_of(row), observed, report, now)
        state = _VERDICTS.get(found.outcome)
        if state is None:
            waiting += 1
            continue
        try:
            decision_actions.finish_command(row.pk, state, found.code, found.sentence)
        except decision_actions.IllegalTransition as error:  # it ended otherwise meanwhile
            log.warning("%s", error)
    return waiting


def written_of(row: CommandRow) -> Written:
    """A command row as `verify.check` reads it; the time it may take comes from its policy."""
    policy = row.job.policy
    if row.to_replicas < row.from_replicas:
        grace = policy.graceful_shutdown_timeout if policy else 0.0
        timeout_s = grace + LEAVE_MARGIN_S
    else:
        patience = policy.fault_scale_down_timeout if policy else 0.0
        timeout_s = max(GROWTH_TIMEOUT_S, patience)
    assert row.applied_at is not None  # the database says so for APPLIED
    return Written(
        workload=gather.key_of(row.job),
        uid=row.job.uid,
        from_replicas=row.from_replicas,
        to_replicas=row.to_replicas,
        applied_at=row.applied_at.timestamp(),
        timeout_s=timeout_s,
    )


def record(
    cluster: Cluster,
    made: Plan,
    snapshot: ClusterSnapshot,
    policies: PolicySet,
    *,
    epoch: int,
    duration_ms: float,
    sample: bool,
) -> tuple[str, ...] | None:
    """One transaction: the plan, its decisions and commands, and what the charts show.

    None when the epoch is over. New commands are queued once it has committed.
    """
    at = datetime.fromtimestamp(snapshot.taken_at, UTC)
    kept = None
    if made.commands:
        kept = {"snapshot": snapshot_to_json(snapshot), "policies": policies_to_json(policies)}
    try:
        with transaction.atomic():
            commands = decision_actions.record_plan(
                cluster,
                made,
                epoch=epoch,
                inputs=kept,
                snapshot_at=at,
                duration_ms=duration_ms,
            )
            cluster_actions.sync_nodes(cluster, snapshot, made.accounting, at)
            if sample:
                cluster_actions.record_capacity(cluster, made.accounting, at)
            ids = tuple(str(command.pk) for command in commands)
            transaction.on_commit(lambda: queue_commands(ids))
    except decision_actions.StaleEpoch as error:
        log.warning("%s", error)
        return None
    return ids


def queue_secret(job_id: str) -> None:
    from workers.tasks.upkeep import ensure_job_secret

    ensure_job_secret.delay(job_id)


def queue_commands(ids: tuple[str, ...]) -> None:
    from workers.tasks.loop import carry_out

    for command_id in ids:
        carry_out.delay(command_id)
