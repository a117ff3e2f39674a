"""Priority classes: who gives way to whom. Queues and cohorts: who owns how much."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q

from apps.clusters.models import Cluster
from apps.priorities.choices import (
    HIGHEST_PRIORITY,
    HIGHEST_USER_PRIORITY,
    LOWEST_PRIORITY,
    Objective,
    PreemptionPolicy,
    PrioritySource,
)
from controlplane.engine import queues as engine
from controlplane.engine import types

object_name = RegexValidator(
    r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z",
    "Use lower-case letters, digits, hyphens and dots, starting and ending with a letter or digit.",
)


class PriorityClass(models.Model):
    name = models.CharField(max_length=253, unique=True, validators=[object_name])
    value = models.IntegerField(
        help_text="Higher goes first. Kubernetes allows up to 1000000000.",
        validators=[MinValueValidator(LOWEST_PRIORITY), MaxValueValidator(HIGHEST_PRIORITY)],
    )
    preemption_policy = models.CharField(
        max_length=20, choices=PreemptionPolicy.choices, default=PreemptionPolicy.RECLAIM_ELASTIC
    )
    description = models.TextField(blank=True)
    source = models.CharField(
        max_length=10, choices=PrioritySource.choices, default=PrioritySource.RECORD
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-value", "name"]
        verbose_name_plural = "priority classes"
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="priority_class_named"),
            models.CheckConstraint(
                condition=Q(value__gte=LOWEST_PRIORITY) & Q(value__lte=HIGHEST_PRIORITY),
                name="priority_class_value_range",
            ),
            models.CheckConstraint(
                condition=Q(preemption_policy__in=PreemptionPolicy.values),
                name="priority_class_preemption_policy",
            ),
            models.CheckConstraint(
                condition=Q(source__in=PrioritySource.values), name="priority_class_source"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.value})"

    def clean(self) -> None:
        """One of our own record stays within Kubernetes' user range; the system's go beyond."""
        own = self.source == PrioritySource.RECORD
        if own and self.value is not None and self.value > HIGHEST_USER_PRIORITY:
            raise ValidationError(
                {
                    "value": f"{self.value} is above {HIGHEST_USER_PRIORITY}, which Kubernetes "
                    "keeps for its own classes. Use a smaller value."
                }
            )


def accelerators(text: str, **options: bool) -> models.PositiveIntegerField:
    return models.PositiveIntegerField(
        validators=[MaxValueValidator(engine.MOST_QUOTA)], help_text=text, **options
    )


class Quota(models.Model):
    """Accelerators of one resource."""

    resource = models.CharField(max_length=253, help_text="Such as nvidia.com/gpu.")
    nominal = accelerators("Accelerators that it owns.")

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.nominal} {self.resource}"

    def clean(self) -> None:
        """The engine's own validation, on the fields that are wrong."""
        errors = {}
        problem = engine.problems_of_resource(self.resource)
        if problem and self.resource:
            errors["resource"] = f"{self.resource!r} {problem}."
        for name, value, said in engine.problems_of_quota(quota_to_engine(self)):
            if value is not None:  # "this field is required" is said already
                errors[name] = f"{value!r} {said}."
        if errors:
            raise ValidationError(errors)


class Cohort(models.Model):
    """Queues of a cluster that lend to each other, and what they own together. One that owns
    nothing itself needs no row: it is there as soon as a queue names it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="cohorts")
    name = models.CharField(max_length=253, validators=[object_name])
    description = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="cohort_name"),
            models.CheckConstraint(condition=~Q(name=""), name="cohort_named"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        refuse_taken(self)


class CohortQuota(Quota):
    cohort = models.ForeignKey(Cohort, on_delete=models.CASCADE, related_name="quotas")

    class Meta:
        ordering = ["cohort", "resource"]
        constraints = [
            models.UniqueConstraint(fields=["cohort", "resource"], name="cohort_quota_resource"),
            models.CheckConstraint(condition=~Q(resource=""), name="cohort_quota_named"),
            models.CheckConstraint(
                condition=Q(nominal__lte=engine.MOST_QUOTA), name="cohort_quota_nominal"
            ),
        ]


class Queue(models.Model):
    """What jobs of a cluster name by their annotation `concertina.dev/queue`. A resource without a
    quota isn't limited, nor is a queue that has no row."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="queues")
    name = models.CharField(
        max_length=253,
        validators=[object_name],
        help_text="As jobs name it in the annotation concertina.dev/queue.",
    )
    description = models.TextField(blank=True)
    cohort = models.CharField(
        max_length=253,
        blank=True,
        validators=[object_name],
        help_text="Queues of one cohort lend to each other. Empty: neither lends nor borrows.",
    )
    weight = models.FloatField(
        default=1.0, help_text="Its part where several queues share: 2 gets twice what 1 gets."
    )
    objective = models.CharField(
        max_length=20,
        choices=Objective.choices,
        default=Objective.FAIR_SHARE,
        help_text="What its jobs share its accelerators by.",
    )
    reserve_after_s = models.FloatField(
        null=True,
        blank=True,
        help_text="Seconds. A job that can't start and has waited so long gets what comes free. "
        "Empty: what can run behind it always goes on.",
    )
    share_floor = models.FloatField(
        null=True,
        blank=True,
        help_text="0 to 1: the part of its fair share below which a job's equals never take it. "
        "Empty: the objective alone decides.",
    )
    protect_nominal = models.BooleanField(
        default=False,
        help_text="What it holds within its nominal quota isn't reclaimed for a higher priority "
        "of other queues.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="queue_name"),
            models.CheckConstraint(condition=~Q(name=""), name="queue_named"),
            models.CheckConstraint(condition=Q(weight__gt=0), name="queue_weight"),
            models.CheckConstraint(
                condition=Q(objective__in=Objective.values), name="queue_objective"
            ),
            models.CheckConstraint(
                condition=Q(reserve_after_s__isnull=True) | Q(reserve_after_s__gte=0),
                name="queue_reserve_after",
            ),
            models.CheckConstraint(
                condition=Q(share_floor__isnull=True)
                | Q(share_floor__gte=0) & Q(share_floor__lte=1),
                name="queue_share_floor",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """The engine's own validation, on the fields that are wrong."""
        refuse_taken(self)
        numbers = {
            name: getattr(self, name) for name in ("weight", "reserve_after_s", "share_floor")
        }
        errors = {
            name: f"{value!r} {said}."
            for name, value, said in engine.problems_of(engine.QueuePolicy(self.name, **numbers))
            if value is not None  # "this field is required" is said already
        }
        if errors:
            raise ValidationError(errors)


class QueueQuota(Quota):
    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="quotas")
    borrowing_limit = accelerators(
        "Most that it takes of its cohort beyond its own; empty: no limit.", null=True, blank=True
    )
    lending_limit = accelerators(
        "Most of its own that it lets its cohort use; empty: no limit.", null=True, blank=True
    )

    class Meta:
        ordering = ["queue", "resource"]
        constraints = [
            models.UniqueConstraint(fields=["queue", "resource"], name="queue_quota_resource"),
            models.CheckConstraint(condition=~Q(resource=""), name="queue_quota_named"),
            models.CheckConstraint(
                condition=Q(nominal__lte=engine.MOST_QUOTA), name="queue_quota_nominal"
            ),
            models.CheckConstraint(
                condition=Q(borrowing_limit__isnull=True)
                | Q(borrowing_limit__lte=engine.MOST_QUOTA),
                name="queue_quota_borrowing",
            ),
            models.CheckConstraint(
                condition=Q(lending_limit__isnull=True) | Q(lending_limit__lte=F("nominal")),
                name="queue_quota_lending",
            ),
        ]


def refuse_taken(row: Queue | Cohort) -> None:
    """The same sentence for pages and API, on the field that people can change."""
    others = type(row).objects.exclude(pk=row.pk)
    if row.cluster_id and others.filter(cluster=row.cluster_id, name=row.name).exists():
        kind = row._meta.verbose_name
        raise ValidationError(
            {"name": ValidationError(f"This cluster has a {kind} {row.name!r} already.", "unique")}
        )


def quota_to_engine(row: Quota) -> engine.Quota:
    limits = ("borrowing_limit", "lending_limit")
    return engine.Quota(row.nominal, **{name: getattr(row, name, None) for name in limits})


def queue_to_engine(row: Queue, quotas: Iterable[QueueQuota]) -> engine.QueuePolicy:
    """A queue with these quotas as the engine's frozen dataclass."""
    return engine.QueuePolicy(
        name=row.name,
        cohort=row.cohort,
        weight=row.weight,
        objective=types.Objective(row.objective),
        quotas={quota.resource: quota_to_engine(quota) for quota in quotas},
        reserve_after_s=row.reserve_after_s,
        share_floor=row.share_floor,
        protect_nominal=row.protect_nominal,
    )


def cohort_to_engine(row: Cohort, quotas: Iterable[CohortQuota]) -> engine.CohortPolicy:
    return engine.CohortPolicy(
        name=row.name, quotas={quota.resource: quota_to_engine(quota) for quota in quotas}
    )
