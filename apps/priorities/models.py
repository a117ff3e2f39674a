"""Priority classes: who gives way to whom."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from apps.priorities.choices import (
    HIGHEST_PRIORITY,
    HIGHEST_USER_PRIORITY,
    LOWEST_PRIORITY,
    PreemptionPolicy,
    PrioritySource,
)

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
