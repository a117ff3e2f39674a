from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from apps.core.administration import ActionAdmin
from apps.priorities import actions
from apps.priorities.choices import PrioritySource
from apps.priorities.models import PriorityClass


@admin.register(PriorityClass)
class PriorityClassAdmin(ActionAdmin):
    app_actions = actions
    list_display = ("name", "value", "preemption_policy", "source", "description")
    list_filter = ("source", "preemption_policy")
    search_fields = ("name", "description")
    fields = (*actions.FIELDS, "source", "changes")
    readonly_fields = ("source", "changes")

    def has_change_permission(self, request: HttpRequest, obj: PriorityClass | None = None) -> bool:
        return super().has_change_permission(request, obj) and not foreign(obj)

    def has_delete_permission(self, request: HttpRequest, obj: PriorityClass | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not foreign(obj)


def foreign(obj: PriorityClass | None) -> bool:
    """Observed on a cluster: changed there."""
    return obj is not None and obj.source == PrioritySource.CLUSTER
