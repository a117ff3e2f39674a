"""Clusters, and what was last observed on them."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

# RFC 1123 label, as Kubernetes names most things; the name is part of URLs and stream events.
cluster_name = RegexValidator(
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z",
    "Use lower-case letters, digits and hyphens, starting and ending with a letter or digit.",
)


class Cluster(models.Model):
    """A Kubernetes cluster, how to reach it, and who holds the lease to act on it.

    `lease_epoch` is the fencing token: it rises by one at each take-over, and what carries an
    older one may no longer write.
    """

    name = models.CharField(max_length=63, unique=True, validators=[cluster_name])
    kubeconfig_path = models.CharField(max_length=500, blank=True)
    context = models.CharField(max_length=253, blank=True)
    in_cluster = models.BooleanField(default=False)
    sandbox = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_observed_at = models.DateTimeField(null=True, blank=True)
    # When the snapshot was taken that the nodes' states (and so the capacity) come from.
    accounted_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)
    lease_holder = models.CharField(max_length=253, blank=True)
    lease_epoch = models.PositiveBigIntegerField(default=0)
    lease_expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="cluster_named"),
            models.CheckConstraint(
                condition=Q(in_cluster=True) | ~Q(kubeconfig_path=""),
                name="cluster_reachable_somehow",
                violation_error_message="Give the path of a kubeconfig, or say in_cluster.",
            ),
            models.CheckConstraint(
                condition=Q(lease_holder="") | Q(lease_expires_at__isnull=False),
                name="cluster_lease_expires",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class NodePool(models.Model):
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pools")
    name = models.CharField(max_length=253)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="node_pool_name"),
            models.CheckConstraint(condition=~Q(name=""), name="node_pool_named"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.name}"


class Node(models.Model):
    """A node as last observed.

    `capacity` is {resource: total}; `states` is {resource: {capacity state: n}} from the engine's
    accounting, adding up to the total; both count whole accelerators. A node that left the
    cluster keeps its row with `gone_at`.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    pool = models.ForeignKey(NodePool, null=True, on_delete=models.SET_NULL, related_name="nodes")
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64)
    ready = models.BooleanField()
    unschedulable = models.BooleanField(default=False)
    taints = models.JSONField(default=list)
    capacity = models.JSONField(default=dict)
    states = models.JSONField(default=dict)
    first_seen_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(null=True)
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="node_uid"),
            models.UniqueConstraint(
                fields=["cluster", "name"], condition=Q(gone_at__isnull=True), name="node_live_name"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class CapacitySample(models.Model):
    """What one accelerator resource of a cluster was used for at one moment.

    `states` is {capacity state: n} and adds up to `total`; `holders` is {team or workload: n},
    what is used or terminating. Nothing is written while the cluster can't be observed: a gap in
    the series means unknown.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="capacity_samples")
    at = models.DateTimeField()
    resource = models.CharField(max_length=253)
    total = models.PositiveIntegerField()
    states = models.JSONField()
    holders = models.JSONField(default=dict)

    class Meta:
        ordering = ["at"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "resource", "at"], name="capacity_sample_once"
            ),
            models.CheckConstraint(condition=~Q(resource=""), name="capacity_sample_resource"),
        ]
        indexes = [models.Index(fields=["at"], name="capacity_sample_age")]

    def __str__(self) -> str:
        return f"{self.resource} {self.at}"
