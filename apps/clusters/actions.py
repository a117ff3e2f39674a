"""Writes of clusters: the lease, and what was observed. One verb a function, one transaction.

What is only observed has no audit entry: it repeats what the cluster says. Take-overs have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.clusters.models import CapacitySample, Cluster, Node, NodePool
from apps.clusters.selectors import full_states
from apps.core import audit, events
from controlplane.engine.accounting import Accounting, Holder, States
from controlplane.engine.snapshot import ClusterSnapshot
from controlplane.engine.snapshot import Node as ObservedNode

# An unchanged capacity is sampled again after this long: a gap in the series means unknown.
SAMPLE_EVERY = timedelta(seconds=5)
NODE_FIELDS = ("pool", "ready", "unschedulable", "taints", "capacity", "states")

FIELDS = ("name", "kubeconfig_path", "context", "in_cluster", "sandbox", "enabled")


@transaction.atomic
def register(name: str, values: Mapping[str, Any], *, actor: User | None) -> tuple[Cluster, bool]:
    """The cluster with this name, made or changed to these values; (row, whether it changed).

    Raises ValidationError that names the field.
    """
    row = Cluster.objects.select_for_update().filter(name=name).first()
    before = audit.values(row, FIELDS) if row else None
    row = row or Cluster(name=name)
    for field, value in values.items():
        setattr(row, field, value)
    row.full_clean()
    after = audit.values(row, FIELDS)
    if before == after:
        return row, False
    row.save()
    audit.record("change" if before else "create", row, actor=actor, before=before, after=after)
    events.publish("cluster", cluster_event(row))
    return row, True


@transaction.atomic
def acquire_lease(cluster_id: int, *, holder: str, duration: timedelta) -> int | None:
    """The new epoch if the lease was free, expired, or this holder's; None if another holds it.

    Each take-over raises the epoch by one, also by the same holder: what it began before it lost
    the lease carries the old one. Raises ValueError without a holder.
    """
    if not holder:
        raise ValueError("a lease needs a holder")
    now = timezone.now()
    row = Cluster.objects.select_for_update().get(pk=cluster_id)
    expires = row.lease_expires_at
    if row.lease_holder not in ("", holder) and expires is not None and expires > now:
        return None
    before = audit.values(row, ("lease_holder", "lease_epoch"))
    row.lease_holder, row.lease_epoch = holder, row.lease_epoch + 1
    row.lease_expires_at = now + duration
    row.save(update_fields=["lease_holder", "lease_epoch", "lease_expires_at"])
    after = audit.values(row, ("lease_holder", "lease_epoch"))
    audit.record("take_lease", row, actor=None, before=before, after=after)
    return row.lease_epoch


def renew_lease(cluster_id: int, *, holder: str, epoch: int, duration: timedelta) -> bool:
    """Extend a lease; False if it has passed to another. One statement: no window to lose it in.

    One that ran out while nobody else took it is still this holder's.
    """
    held = Cluster.objects.filter(pk=cluster_id, lease_holder=holder, lease_epoch=epoch)
    return held.update(lease_expires_at=timezone.now() + duration) == 1


def release_lease(cluster_id: int, *, holder: str, epoch: int) -> bool:
    """Give a lease back, so that a successor need not wait; False if it was no longer ours."""
    held = Cluster.objects.filter(pk=cluster_id, lease_holder=holder, lease_epoch=epoch)
    return held.update(lease_holder="", lease_expires_at=None) == 1


@transaction.atomic
def record_observed(cluster_id: int, *, at: datetime) -> None:
    """A complete observation: the cluster is known as of `at`, and any error is over."""
    Cluster.objects.filter(pk=cluster_id).update(
        last_observed_at=at, last_error="", last_error_at=None
    )
    publish_cluster(cluster_id)


@transaction.atomic
def record_unreachable(cluster_id: int, *, error: str) -> None:
    """The cluster can't be observed. What was last known keeps its age; nothing becomes 0."""
    Cluster.objects.filter(pk=cluster_id).update(
        last_error=error[:2000] or "unknown error", last_error_at=timezone.now()
    )
    publish_cluster(cluster_id)


def publish_cluster(cluster_id: int) -> None:
    row = Cluster.objects.filter(pk=cluster_id).first()
    if row is not None:
        events.publish("cluster", cluster_event(row))


def cluster_event(row: Cluster) -> dict[str, Any]:
    return {
        "name": row.name,
        "last_observed_at": row.last_observed_at,
        "last_error": row.last_error,
    }


# -- capacity --------------------------------------------------------------------------------------


def sync_nodes(
    cluster: Cluster, snapshot: ClusterSnapshot, accounting: Accounting, at: datetime
) -> int:
    """Bring the rows of a cluster's nodes up to a complete snapshot; how many changed.

    `at` is when the snapshot was taken: from then on it is the age of the shown capacity. A node
    that is gone keeps its row with `gone_at`; one made anew under its name is another node.
    """
    known = {node.uid: node for node in cluster.nodes.filter(gone_at=None).select_related("pool")}
    present = {node.uid for node in snapshot.nodes}
    gone = [node.pk for uid, node in known.items() if uid not in present]
    with transaction.atomic():
        Cluster.objects.filter(pk=cluster.pk).update(accounted_at=at)
        if gone:
            Node.objects.filter(pk__in=gone).update(gone_at=at)
        pools = _pools(cluster, {node.pool for node in snapshot.nodes})
        create, update = [], []
        for seen in snapshot.nodes:
            values = _node_values(seen, pools, accounting)
            row = known.get(seen.uid)
            if row is None:
                create.append(
                    Node(cluster=cluster, uid=seen.uid, name=seen.name, changed_at=at, **values)
                )
            elif any(getattr(row, name) != value for name, value in values.items()):
                for name, value in {**values, "changed_at": at}.items():
                    setattr(row, name, value)
                update.append(row)
        _make_way(cluster, create)
        Node.objects.bulk_create(create, batch_size=500)
        if update:
            Node.objects.bulk_update(update, [*NODE_FIELDS, "changed_at"], batch_size=200)
    return len(gone) + len(create) + len(update)


def _make_way(cluster: Cluster, create: list[Node]) -> None:
    """A node that was taken for gone and is seen again under its own uid: the old row goes."""
    uids = [node.uid for node in create]
    if uids:
        cluster.nodes.filter(uid__in=uids, gone_at__isnull=False).delete()


def _pools(cluster: Cluster, names: Iterable[str]) -> dict[str, NodePool]:
    known = {pool.name: pool for pool in cluster.pools.all()}
    for name in sorted(set(names) - set(known)):
        known[name] = NodePool.objects.create(cluster=cluster, name=name)
    return known


def _node_values(
    seen: ObservedNode, pools: Mapping[str, NodePool], accounting: Accounting
) -> dict[str, Any]:
    states = accounting.nodes.get(seen.name, {})
    return {
        "pool": pools[seen.pool],
        "ready": seen.ready,
        "unschedulable": seen.unschedulable,
        "taints": [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in seen.taints
        ],
        "capacity": dict(accounting.capacity.get(seen.name, {})),
        "states": {resource: _plain(counts) for resource, counts in states.items()},
    }


def _plain(states: States) -> dict[str, int]:
    return {str(state): n for state, n in states.items()}


def record_capacity(cluster: Cluster, accounting: Accounting, at: datetime) -> int:
    """Sample each resource whose states or holders changed, or weren't sampled for a while.

    Returns how many samples were written. Recording the same moment again replaces its sample.
    """
    written = 0
    with transaction.atomic():
        for resource, states in accounting.totals.items():
            values = {
                "total": sum(states.values()),
                "states": _plain(states),
                "holders": holders_by_name(accounting.holders.get(resource, {})),
            }
            if not _is_due(cluster, resource, values, at):
                continue
            CapacitySample.objects.update_or_create(
                cluster=cluster, resource=resource, at=at, defaults=values
            )
            written += 1
            shown = {**values, "states": full_states(values["states"])}
            events.publish(
                "capacity", {"cluster": cluster.name, "at": at, "resource": resource, **shown}
            )
    return written


def _is_due(cluster: Cluster, resource: str, values: dict[str, Any], at: datetime) -> bool:
    last = CapacitySample.objects.filter(cluster=cluster, resource=resource).order_by("-at").first()
    if last is None or at - last.at >= SAMPLE_EVERY:
        return True
    return any(getattr(last, name) != value for name, value in values.items())


def holders_by_name(holders: Mapping[Holder, int]) -> dict[str, int]:
    """{"Kind/namespace/name": n}; pods without an owner count for their team."""
    found: dict[str, int] = {}
    for holder, n in holders.items():
        name = str(holder.workload) if holder.workload else holder.team
        found[name] = found.get(name, 0) + n
    return found
