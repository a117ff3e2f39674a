"""The database itself refuses what can't be true, whoever writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from apps.accounts.models import ApiToken
from apps.clusters.models import CapacitySample, Cluster, ClusterSettings, Node, NodePool
from apps.core.models import AuditEntry
from apps.decisions.models import Command, Decision, Plan
from apps.priorities.models import Cohort, Queue
from apps.training.models import Replica, RunAttempt, TrainingJob
from tests.rows import (
    AT,
    GPU,
    after,
    make_attempt,
    make_capacity,
    make_class,
    make_cluster,
    make_cohort,
    make_command,
    make_decision,
    make_job,
    make_plan,
    make_policy_row,
    make_queue,
    make_recovery,
    make_replica,
    make_user,
)

pytestmark = pytest.mark.django_db


def node(cluster: Cluster, uid: str, **fields: Any) -> Node:
    return Node.objects.create(cluster=cluster, uid=uid, **{"name": "n0", "ready": True, **fields})


def token(name: str, **fields: Any) -> ApiToken:
    user = make_user(f"u{ApiToken.objects.count()}") if "user" not in fields else fields["user"]
    values = {"user": user, "prefix": "ct_x", "digest": name, "created_at": AT, **fields}
    return ApiToken.objects.create(name=name, **values)


def settings_row(**fields: Any) -> ClusterSettings:
    return ClusterSettings.objects.create(cluster=the_cluster(), **fields)


def twice(make: Callable[[], Any]) -> None:
    make()
    make()


REFUSED: dict[str, Callable[[], Any]] = {
    "cluster_reachable_somehow": lambda: Cluster.objects.create(name="x"),
    "cluster_lease_expires": lambda: make_cluster(lease_holder="w1"),
    "cluster_named": lambda: make_cluster(""),
    "clusters_cluster.name": lambda: twice(lambda: make_cluster("x")),
    "node_pool_name": lambda: twice(
        lambda: NodePool.objects.create(cluster=the_cluster(), name="main")
    ),
    "node_uid": lambda: (
        node(the_cluster(), "1", gone_at=AT),
        node(the_cluster(), "1", gone_at=AT),
    ),
    "node_live_name": lambda: (node(the_cluster(), "1"), node(the_cluster(), "2")),
    "capacity_sample_once": lambda: twice(lambda: make_capacity(the_cluster(), AT)),
    "capacity_sample_resource": lambda: make_capacity(the_cluster(), AT, resource=""),
    "priority_class_value_range": lambda: make_class(value=2_000_001_001),
    "priority_class_preemption_policy": lambda: make_class(preemption_policy="Always"),
    "priority_class_source": lambda: make_class(source="elsewhere"),
    "clusters_clustersettings": lambda: twice(settings_row),
    "cluster_settings_quantile": lambda: settings_row(forecast_quantile=1),
    "cluster_settings_disruption": lambda: settings_row(max_disruption_ratio=0),
    "cluster_settings_offender_faults": lambda: settings_row(offender_faults=0),
    "cluster_settings_bind_timeout_s": lambda: settings_row(bind_timeout_s=-1),
    "cohort_name": lambda: twice(lambda: make_cohort(the_cluster())),
    "cohort_named": lambda: make_cohort(name=""),
    "cohort_quota_named": lambda: make_cohort(quotas={"": 1}),
    "cohort_quota_nominal": lambda: make_cohort(quotas={GPU: 10_000_001}),
    "cohort_quota_resource": lambda: twice(
        lambda: the_cohort().quotas.create(resource=GPU, nominal=1)
    ),
    "queue_name": lambda: twice(lambda: make_queue(the_cluster())),
    "queue_named": lambda: make_queue(name=""),
    "queue_weight": lambda: make_queue(weight=0),
    "queue_objective": lambda: make_queue(objective="luck"),
    "queue_reserve_after": lambda: make_queue(reserve_after_s=-1),
    "queue_share_floor": lambda: make_queue(share_floor=1.1),
    "queue_quota_named": lambda: make_queue(quotas={"": {"nominal": 1}}),
    "queue_quota_nominal": lambda: make_queue(quotas={GPU: {"nominal": 10_000_001}}),
    "queue_quota_borrowing": lambda: make_queue(
        quotas={GPU: {"nominal": 1, "borrowing_limit": 10_000_001}}
    ),
    "queue_quota_lending": lambda: make_queue(quotas={GPU: {"nominal": 1, "lending_limit": 2}}),
    "queue_quota_resource": lambda: twice(
        lambda: the_queue().quotas.create(resource=GPU, nominal=1)
    ),
    "elasticity_min_positive": lambda: make_policy_row(min_replicas=0),
    "elasticity_max_from_min": lambda: make_policy_row(min_replicas=5, max_replicas=4),
    "elasticity_step_positive": lambda: make_policy_row(replica_increment_step=0),
    "elasticity_step_or_list": lambda: make_policy_row(
        replica_increment_step=1, replica_discrete_values=[1, 2]
    ),
    "elasticity_cooldown": lambda: make_policy_row(cooldown=-1),
    "elasticity_min_gain": lambda: make_policy_row(min_gain=-0.1),
    "elasticity_batch_policy": lambda: make_policy_row(batch_policy="grow"),
    "elasticity_lr_rule": lambda: make_policy_row(lr_rule="cubic"),
    "job_uid": lambda: (make_job(the_cluster(), "a"), make_job(the_cluster(), "b", uid="uid-a")),
    "job_live_name": lambda: (make_job(the_cluster()), make_job(the_cluster(), uid="other")),
    "job_phase": lambda: make_job(phase="thinking"),
    "job_finished_phase": lambda: make_job(phase="running", finished_at=AT),
    "job_pods_positive": lambda: make_job(pods_per_replica=0),
    "job_policy_or_error": lambda: make_job(policy=make_policy_row(), policy_error="absent"),
    "replica_index": lambda: twice(lambda: make_replica(the_job())),
    "replica_phase": lambda: make_replica(the_job(), phase="?"),
    "run_attempt_once": lambda: twice(lambda: make_attempt(the_job())),
    "run_attempt_named": lambda: make_attempt(the_job(), ""),
    "recovery_once": lambda: twice(lambda: make_recovery(the_attempt())),
    "recovery_duration": lambda: make_recovery(the_attempt(), duration_s=-1),
    "plan_number": lambda: twice(lambda: make_plan(the_cluster())),
    "plan_seen_after_planned": lambda: make_plan(the_cluster(), last_seen_at=after(-1)),
    "decision_once": lambda: twice(lambda: make_decision(the_job(), the_plan())),
    "decision_reason": lambda: make_decision(the_job(), reason_code=""),
    "command_one_live_a_job": lambda: twice(lambda: make_command(the_job())),
    "command_state": lambda: make_command(the_job(), state="lost", finished_at=AT),
    "command_kind": lambda: make_command(the_job(), kind="poke"),
    "command_finished": lambda: make_command(the_job(), state="done", finished_at=None),
    "command_changes_size": lambda: make_command(the_job(), to_replicas=4),
    "command_suspends_all": lambda: make_command(the_job(), kind="suspend", to_replicas=2),
    "command_applied_at": lambda: make_command(the_job(), state="applied", applied_at=None),
    "api_token_live_name": lambda: (
        token("laptop", digest="1", user=make_user()),
        token("laptop", digest="2", user=ApiToken.objects.get().user),
    ),
    "api_token_named": lambda: token(""),
    "audit_verb_named": lambda: AuditEntry.objects.create(at=AT, actor_name="x", verb=""),
}


def the_cluster() -> Cluster:
    return Cluster.objects.first() or make_cluster()


def the_queue() -> Queue:
    return Queue.objects.first() or make_queue(the_cluster())


def the_cohort() -> Cohort:
    return Cohort.objects.first() or make_cohort(the_cluster())


def the_job() -> TrainingJob:
    return TrainingJob.objects.first() or make_job(the_cluster())


def the_attempt() -> RunAttempt:
    return RunAttempt.objects.first() or make_attempt(the_job())


def the_plan() -> Plan:
    return Plan.objects.first() or make_plan(the_cluster())


@pytest.mark.parametrize("constraint", sorted(REFUSED))
def test_refused(constraint: str) -> None:
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        REFUSED[constraint]()
    # An unknown phase breaks two rules; which is named first is the database's choice.
    if constraint == "job_phase":
        constraint = "phase"
    # SQLite names the columns of a unique constraint, PostgreSQL the constraint.
    text = str(refused.value)
    assert constraint in text or "UNIQUE constraint failed" in text or "_key" in text


def test_what_the_rules_leave_free() -> None:
    cluster = make_cluster()
    node(cluster, "1", gone_at=AT)
    node(cluster, "2")
    make_job(cluster, phase="deleted", uid="first")
    job = make_job(cluster)
    make_command(job, state="done")
    make_command(job, state="failed")
    make_command(job)
    make_capacity(cluster, AT)
    make_capacity(cluster, AT, resource="amd.com/gpu")
    assert CapacitySample.objects.filter(resource=GPU).count() == 1
    assert (Command.objects.count(), Decision.objects.count()) == (3, 3)
    assert Replica.objects.count() == 0
