"""Elasticity policies: how far and how fast a training job may breathe."""

from __future__ import annotations

import dataclasses
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import F, Q

from apps.elasticity.choices import BatchPolicy, LearningRateRule
from apps.priorities.models import object_name
from controlplane.engine import policy as engine

REQUIRED = ("min_replicas", "max_replicas")

DURATIONS = (
    "graceful_shutdown_timeout",
    "scaling_timeout",
    "fault_scale_down_timeout",
    "scale_up_snooze",
    "cooldown",
)


def whole_number(**options: Any) -> models.PositiveIntegerField:
    """PostgreSQL's range on every database: what one takes the other must take."""
    return models.PositiveIntegerField(validators=[MaxValueValidator(2**31 - 1)], **options)


def seconds(default: float, text: str) -> models.FloatField:
    return models.FloatField(default=default, help_text=f"Seconds. {text}")


class ElasticityPolicy(models.Model):
    """The fields follow the published elastic-training APIs, see docs and `engine/policy.py`,
    which also holds the validation that this model, the API and the planner share."""

    name = models.CharField(max_length=253, unique=True, validators=[object_name])
    description = models.TextField(blank=True)
    min_replicas = whole_number(help_text="Fewer than this: the job doesn't run.")
    max_replicas = whole_number()
    replica_increment_step = whole_number(
        null=True, blank=True, help_text="Valid sizes are min + k × step. Or give a list, not both."
    )
    replica_discrete_values = models.JSONField(
        null=True, blank=True, help_text="The valid sizes, as a list, e.g. [1, 2, 4, 8]."
    )
    graceful_shutdown_timeout = seconds(60, "A leaving replica gets this long to finish its step.")
    scaling_timeout = seconds(60, "Free capacity must last this long before a job grows into it.")
    fault_scale_down_timeout = seconds(
        300, "A job short of replicas after a fault shrinks to what it holds after this."
    )
    scale_up_snooze = seconds(120, "No growth for this long after a restart.")
    cooldown = seconds(60, "Least time between two growths.")
    min_gain = models.FloatField(
        default=0.0, help_text="Least relative gain in throughput that a growth must promise."
    )
    restart_budget = whole_number(
        null=True, blank=True, help_text="Most resizes an hour; empty for no limit."
    )
    batch_policy = models.CharField(
        max_length=10, choices=BatchPolicy.choices, default=BatchPolicy.PRESERVE
    )
    lr_rule = models.CharField(
        max_length=10, choices=LearningRateRule.choices, default=LearningRateRule.NONE
    )
    schedule = models.JSONField(
        default=list, blank=True, help_text="Windows of time in which the bounds differ."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "elasticity policies"
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="elasticity_policy_named"),
            models.CheckConstraint(
                condition=Q(min_replicas__gte=1), name="elasticity_min_positive"
            ),
            models.CheckConstraint(
                condition=Q(max_replicas__gte=F("min_replicas")), name="elasticity_max_from_min"
            ),
            models.CheckConstraint(
                condition=Q(replica_increment_step__isnull=True) | Q(replica_increment_step__gte=1),
                name="elasticity_step_positive",
            ),
            models.CheckConstraint(
                condition=Q(replica_increment_step__isnull=True)
                | Q(replica_discrete_values__isnull=True),
                name="elasticity_step_or_list",
            ),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{field}__gte": 0}), name=f"elasticity_{field}"
                )
                for field in (*DURATIONS, "min_gain")
            ),
            models.CheckConstraint(
                condition=Q(batch_policy__in=BatchPolicy.values), name="elasticity_batch_policy"
            ),
            models.CheckConstraint(
                condition=Q(lr_rule__in=LearningRateRule.values), name="elasticity_lr_rule"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """The engine's own validation. Raises ValidationError on the fields that are wrong."""
        for name in ("replica_discrete_values", "schedule"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, list):
                raise ValidationError({name: f"{value!r} is not a list."})
        errors: dict[str, list[ValidationError]] = {}
        for error in engine.validate(to_engine(self)):
            if getattr(self, error.field, None) is None and error.field in REQUIRED:
                continue  # "this field is required" is said already
            # a window's field is a path: forms and clients know the field that it lies in
            name = error.field.partition("[")[0]
            where = "" if name == error.field else f"{error.field}: "
            said = f"{where}{error.value!r} {error.message}."
            errors.setdefault(name, []).append(ValidationError(said, "invalid"))
        if errors:
            raise ValidationError(errors)


def to_engine(row: ElasticityPolicy) -> engine.ElasticityPolicy:
    """The same policy as the engine's frozen dataclass."""
    names = [field.name for field in dataclasses.fields(engine.ElasticityPolicy)]
    values = {name: getattr(row, name) for name in names}
    for name in ("replica_discrete_values", "schedule"):
        if values[name] is not None:
            values[name] = tuple(values[name])
    return engine.ElasticityPolicy(**values)
