from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.forms import ModelForm

from apps.core.administration import ActionAdmin
from apps.elasticity import actions
from apps.elasticity.models import ElasticityPolicy


class PolicyForm(ModelForm):
    """The model validates the values; a name in use is the action's to refuse, said here."""

    class Meta:
        model = ElasticityPolicy
        fields = actions.FIELDS

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.instance.pk and "name" in self.changed_data:
            actions.refuse_in_use(ElasticityPolicy.objects.get(pk=self.instance.pk), "renamed")
        if cleaned.get("schedule") is None:
            cleaned["schedule"] = []
        return cleaned


@admin.register(ElasticityPolicy)
class ElasticityPolicyAdmin(ActionAdmin):
    app_actions = actions
    form = PolicyForm
    list_display = ("name", "min_replicas", "max_replicas", "batch_policy", "description")
    search_fields = ("name", "description")
    fieldsets = (
        (None, {"fields": ("name", "description")}),
        (
            "Sizes",
            {
                "fields": (
                    ("min_replicas", "max_replicas"),
                    "replica_increment_step",
                    "replica_discrete_values",
                    "schedule",
                )
            },
        ),
        (
            "Times, in seconds",
            {
                "fields": (
                    ("scaling_timeout", "cooldown"),
                    ("scale_up_snooze", "fault_scale_down_timeout"),
                    "graceful_shutdown_timeout",
                )
            },
        ),
        ("Worth it", {"fields": (("min_gain", "restart_budget"),)}),
        ("Batch", {"fields": (("batch_policy", "lr_rule"),)}),
        ("History", {"fields": ("changes",)}),
    )
