"""Clusters, their settings, and what was last observed on them."""

from __future__ import annotations

import dataclasses

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from controlplane.engine import cluster_policy as engine

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


DEFAULTS = engine.ClusterPolicy()


def seconds(name: str, text: str) -> models.FloatField:
    return models.FloatField(default=getattr(DEFAULTS, name), help_text=f"Seconds. {text}")


class ClusterSettings(models.Model):
    """What an administrator sets for a whole cluster: the fields of `engine/cluster_policy.py`,
    which also holds the validation. A cluster without a row has the defaults: all is off."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="settings")
    topology_levels = models.JSONField(
        default=list,
        blank=True,
        help_text="Node labels from the widest to the narrowest, as a list, e.g. "
        '["topology.kubernetes.io/block", "topology.kubernetes.io/rack"].',
    )
    spares = models.JSONField(
        default=dict,
        blank=True,
        help_text="Warm capacity for repairs that growth leaves free: accelerators by resource, "
        'e.g. {"nvidia.com/gpu": 8}.',
    )
    reserves = models.JSONField(
        default=dict,
        blank=True,
        help_text="The same for inflow of higher priority.",
    )
    forecast_quantile = models.FloatField(
        null=True,
        blank=True,
        help_text="Between 0 and 1: reserve what inflow of higher priority took in the recorded "
        "weeks, at this quantile. Empty: off.",
    )
    forecast_horizon_s = seconds("forecast_horizon_s", "How far ahead that looks.")
    max_disruption_ratio = models.FloatField(
        default=DEFAULTS.max_disruption_ratio,
        help_text="Most of a job's replicas that one cycle may reclaim, above 0; 1: no bound.",
    )
    terminating_timeout_s = seconds(
        "terminating_timeout_s", "A pod that should have gone so long ago hangs, and is reported."
    )
    offender_faults = models.PositiveIntegerField(
        default=DEFAULTS.offender_faults,
        validators=[MaxValueValidator(engine.MOST_FAULTS)],
        help_text="A node that hurt jobs so often within the window is avoided.",
    )
    offender_window_s = seconds("offender_window_s", "The window of those faults.")
    offender_rest_s = seconds("offender_rest_s", "It is avoided for so long after the last.")
    departure_notice_s = seconds(
        "departure_notice_s", "A node that leaves within this gets no new pods."
    )
    bind_timeout_s = seconds(
        "bind_timeout_s",
        "A demand that fits and isn't bound for so long gives its place to others for a time.",
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["cluster"]
        verbose_name_plural = "cluster settings"
        constraints = [
            models.CheckConstraint(
                condition=Q(forecast_quantile__isnull=True)
                | Q(forecast_quantile__gt=0) & Q(forecast_quantile__lt=1),
                name="cluster_settings_quantile",
            ),
            models.CheckConstraint(
                condition=Q(max_disruption_ratio__gt=0) & Q(max_disruption_ratio__lte=1),
                name="cluster_settings_disruption",
            ),
            models.CheckConstraint(
                condition=Q(offender_faults__gte=1), name="cluster_settings_offender_faults"
            ),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{field}__gte": 0}), name=f"cluster_settings_{field}"
                )
                for field in engine.TIMES
            ),
        ]

    def __str__(self) -> str:
        return f"Settings of {self.cluster}"

    def clean(self) -> None:
        """The engine's own validation. Raises ValidationError on the fields that are wrong."""
        if not isinstance(self.topology_levels, list):
            raise ValidationError({"topology_levels": "Give a list of node labels, [] for none."})
        for name in ("spares", "reserves"):
            if not isinstance(getattr(self, name), dict):
                raise ValidationError({name: "Give {resource: accelerators}, {} for none."})
        errors: dict[str, list[str]] = {}
        for path, value, said in engine.problems_of(settings_to_engine(self)):
            name, _, key = path.partition(".")
            if value is not None:  # "this field is required" is said already
                shown = f"{key}: {value!r}" if key else repr(value)
                errors.setdefault(name, []).append(f"{shown} {said}.")
        if errors:
            raise ValidationError(errors)


def settings_to_engine(row: ClusterSettings) -> engine.ClusterPolicy:
    """The same settings as the engine's frozen dataclass."""
    names = [field.name for field in dataclasses.fields(engine.ClusterPolicy)]
    values = {name: getattr(row, name) for name in names}
    values["topology_levels"] = tuple(values["topology_levels"])
    return engine.ClusterPolicy(**values)


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
