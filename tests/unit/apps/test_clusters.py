"""The lease and its epoch; nodes and capacity follow the engine's accounting."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.clusters import actions, selectors
from apps.clusters.choices import CapacityState
from apps.clusters.models import CapacitySample, Cluster, Node
from apps.core.models import AuditEntry
from apps.decisions.choices import CommandKind
from apps.elasticity.choices import BatchPolicy, LearningRateRule
from apps.training.choices import RecoveryStage
from controlplane.engine import accounting, commands, policy
from tests import builders
from tests.builders import GPU
from tests.rows import make_cluster
from trainer_runtime import wire

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
AT = datetime.fromtimestamp(builders.NOW, UTC)


def test_our_choices_are_the_engines_and_the_wires() -> None:
    assert set(CapacityState.values) == {str(s) for s in accounting.CapacityState}
    assert set(CommandKind.values) == {str(k) for k in commands.CommandKind}
    assert set(BatchPolicy.values) == set(policy.BATCH_POLICIES)
    assert set(LearningRateRule.values) == set(policy.LR_RULES)
    assert RecoveryStage.values == [str(s) for s in wire.RecoveryStage]


LEASES: list[tuple[str, dict[str, Any], str, int | None]] = [
    # name, the row, who asks, the epoch he gets
    ("free", {"lease_epoch": 4}, "b", 5),
    ("held by another", {"lease_holder": "a", "expires": MINUTE}, "b", None),
    ("run out", {"lease_holder": "a", "expires": -MINUTE}, "b", 2),
    ("his own: he lost what he began", {"lease_holder": "b", "expires": MINUTE}, "b", 2),
]


@pytest.mark.parametrize(("name", "fields", "holder", "want"), LEASES, ids=[x[0] for x in LEASES])
def test_acquire(name: str, fields: dict[str, Any], holder: str, want: int | None) -> None:
    if "expires" in fields:
        fields = {**fields, "lease_expires_at": timezone.now() + fields["expires"]}
        del fields["expires"]
    cluster = make_cluster(**fields)
    assert actions.acquire_lease(cluster.pk, holder=holder, duration=MINUTE) == want
    row = Cluster.objects.get()
    if want is None:
        assert (row.lease_holder, row.lease_epoch) == ("a", 1)
        assert not AuditEntry.objects.exists()
    else:
        assert (row.lease_holder, row.lease_epoch) == (holder, want)
        assert AuditEntry.objects.get().after == {"lease_holder": holder, "lease_epoch": want}


@pytest.mark.parametrize(
    ("holder", "epoch", "kept"), [("a", 2, True), ("a", 1, False), ("b", 2, False)]
)
@pytest.mark.parametrize("verb", ["renew", "release"])
def test_only_the_holder_of_the_epoch_keeps_or_gives_back(
    verb: str, holder: str, epoch: int, kept: bool
) -> None:
    cluster = make_cluster()
    actions.acquire_lease(cluster.pk, holder="a", duration=MINUTE)
    if verb == "renew":
        done = actions.renew_lease(cluster.pk, holder=holder, epoch=epoch, duration=MINUTE)
    else:
        done = actions.release_lease(cluster.pk, holder=holder, epoch=epoch)
    assert done is kept
    released = verb == "release" and kept
    assert Cluster.objects.get().lease_holder == ("" if released else "a")


def test_an_error_keeps_the_age_of_what_was_known() -> None:
    cluster = make_cluster()
    actions.record_observed(cluster.pk, at=AT)
    actions.record_unreachable(cluster.pk, error="connection refused")
    row = Cluster.objects.get()
    assert (row.last_observed_at, row.last_error) == (AT, "connection refused")
    actions.record_observed(cluster.pk, at=AT + MINUTE)
    row.refresh_from_db()
    assert (row.last_error, row.last_error_at) == ("", None)


def observe(cluster: Cluster, *, seconds: float = 0, **fields: Any) -> int:
    snapshot = builders.make_snapshot(**fields)
    at = AT + timedelta(seconds=seconds)
    account = accounting.account(snapshot)
    changed = actions.sync_nodes(cluster, snapshot, account, at)
    actions.record_capacity(cluster, account, at)
    return changed


JOB = builders.make_workload("llama", granted=1)
HELD = builders.make_replicas(JOB, ["n00"])
TWO = builders.make_nodes(2)


def test_nodes_and_capacity() -> None:
    cluster = make_cluster()
    assert observe(cluster, nodes=TWO, pods=HELD, workloads=[JOB]) == 2
    first, second = Node.objects.order_by("name")
    assert (first.capacity, first.states) == ({GPU: 8}, {GPU: {"used": 8}})
    assert (second.pool.name, second.states) == ("main", {GPU: {"free": 8}})
    sample = CapacitySample.objects.get()
    assert (sample.total, sample.states) == (16, {"used": 8, "free": 8})
    assert sample.holders == {"Job/ml/llama": 8}
    cluster.refresh_from_db()
    assert cluster.accounted_at == AT
    [now] = selectors.capacity_now(cluster, AT)
    assert (now["total"], now["states"]["used"], now["age_s"]) == (16, 8, 0)


def test_only_changes_are_written() -> None:
    cluster = make_cluster()
    observe(cluster, nodes=TWO)
    assert observe(cluster, nodes=TWO, seconds=1) == 0
    assert CapacitySample.objects.count() == 1
    observe(cluster, nodes=TWO, seconds=6)  # nothing changed for a while: still known
    assert CapacitySample.objects.count() == 2
    cordoned = (TWO[0], replace(TWO[1], unschedulable=True))
    assert observe(cluster, nodes=cordoned, seconds=7) == 1
    assert Node.objects.get(name="n01").states == {GPU: {"cordoned": 8}}
    assert CapacitySample.objects.count() == 3


def test_the_same_moment_again_replaces_its_sample() -> None:
    cluster = make_cluster()
    observe(cluster, nodes=TWO)
    observe(cluster, nodes=TWO, pods=HELD, workloads=[JOB])
    assert CapacitySample.objects.get().states == {"used": 8, "free": 8}


def test_a_node_goes_comes_back_and_is_made_anew() -> None:
    cluster = make_cluster()
    observe(cluster, nodes=TWO)
    assert observe(cluster, nodes=TWO[:1], seconds=1) == 1
    assert Node.objects.get(name="n01").gone_at == AT + timedelta(seconds=1)
    assert [node.name for node in selectors.live_nodes(cluster)] == ["n00"]
    observe(cluster, nodes=TWO, seconds=2)
    assert Node.objects.count() == 2
    observe(cluster, nodes=(TWO[0], replace(TWO[1], uid="anew")), seconds=3)
    assert Node.objects.filter(name="n01").count() == 2
    assert [node.uid for node in selectors.live_nodes(cluster)] == ["uid-n00", "anew"]


@pytest.mark.parametrize(("age_s", "known"), [(0, True), (30, True), (31, False)])
def test_what_is_too_old_is_absent(age_s: int, known: bool) -> None:
    cluster = make_cluster()
    observe(cluster, nodes=TWO)
    cluster.refresh_from_db()
    [now] = selectors.capacity_now(cluster, AT + timedelta(seconds=age_s))
    assert (now["states"] is not None, now["total"] is not None) == (known, known)
    assert now["age_s"] == age_s


def test_resources_are_never_added_up_across_names() -> None:
    cluster = make_cluster()
    other = {"amd.com/gpu": 4, "cpu": 1000}
    nodes = (*TWO, replace(builders.make_node("n02"), capacity=other, allocatable=other))
    observe(cluster, nodes=nodes)
    cluster.refresh_from_db()
    found = {e["resource"]: e["total"] for e in selectors.capacity_now(cluster, AT)}
    assert found == {"amd.com/gpu": 4, GPU: 16}
