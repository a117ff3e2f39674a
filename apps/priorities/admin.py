from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.forms import ModelForm
from django.http import HttpRequest
from unfold.admin import TabularInline

from apps.core.administration import ActionAdmin
from apps.priorities import actions, cohort_actions, queue_actions, quotas
from apps.priorities.choices import PrioritySource
from apps.priorities.models import Cohort, CohortQuota, PriorityClass, Queue, QueueQuota


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


class QuotaOwnerAdmin(ActionAdmin):
    """Quotas are edited on the page of their owner and written with it, by one action."""

    search_fields = ("name", "description")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        # Jobs and queues refer to it by these: another name is another queue.
        return self.readonly_fields if obj is None else ("cluster", "name", *self.readonly_fields)

    def save_model(self, request: HttpRequest, obj: Any, form: ModelForm, change: bool) -> None:
        """Nothing yet: `save_related` knows the quotas, too, and comes in the same transaction."""

    def save_related(
        self, request: HttpRequest, form: ModelForm, formsets: list[Any], change: bool
    ) -> None:
        row = form.instance
        names = [name for name in self.written_fields if name in form.cleaned_data]
        given = {name: form.cleaned_data[name] for name in names}
        given["quotas"] = [
            {name: quota[name] for name in ("resource", *quotas.limits_of(row))}
            for formset in formsets
            for quota in formset.cleaned_data
            if quota and not quota.get("DELETE")
        ]
        if change:
            self.app_actions.change(row, given, actor=request.user)
        else:
            row.pk = self.app_actions.create(given, actor=request.user).pk
            row._state.adding = False
        for formset in formsets:  # what Django's own history asks for
            formset.save(commit=False)


class QueueQuotaInline(TabularInline):
    model = QueueQuota
    fields = ("resource", "nominal", "borrowing_limit", "lending_limit")
    extra = 0


class CohortQuotaInline(TabularInline):
    model = CohortQuota
    fields = ("resource", "nominal")
    extra = 0


@admin.register(Queue)
class QueueAdmin(QuotaOwnerAdmin):
    app_actions = queue_actions
    list_display = ("name", "cluster", "cohort", "weight", "objective", "description")
    list_filter = ("cluster", "cohort", "objective")
    inlines = (QueueQuotaInline,)
    fieldsets = (
        (None, {"fields": ("cluster", "name", "description")}),
        ("Shares", {"fields": ("cohort", ("weight", "objective"))}),
        ("Waiting and giving", {"fields": (("reserve_after_s", "share_floor"), "protect_nominal")}),
        ("History", {"fields": ("changes",)}),
    )


@admin.register(Cohort)
class CohortAdmin(QuotaOwnerAdmin):
    app_actions = cohort_actions
    list_display = ("name", "cluster", "description")
    list_filter = ("cluster",)
    inlines = (CohortQuotaInline,)
    fields = (*cohort_actions.FIELDS, "changes")
