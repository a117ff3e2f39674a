"""What every app shares: the audit trail."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class AuditEntry(models.Model):
    """Who changed what, when. Written in the transaction of the change itself; never edited."""

    at = models.DateTimeField(db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    # Kept when the user is gone; "concertina" for what the control plane did by itself.
    actor_name = models.CharField(max_length=150)
    verb = models.CharField(max_length=64)
    object_type = models.CharField(max_length=64)
    object_id = models.CharField(max_length=64)
    object_name = models.CharField(max_length=253, blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["object_type", "object_id", "-at"], name="audit_object"),
        ]
        constraints = [
            models.CheckConstraint(condition=~models.Q(verb=""), name="audit_verb_named"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.verb} {self.object_type} {self.object_name}"
