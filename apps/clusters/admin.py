from __future__ import annotations

from django.contrib import admin
from django.forms import ModelForm
from django.http import HttpRequest

from apps.clusters import actions
from apps.clusters.models import CapacitySample, Cluster, Node, NodePool
from apps.core.administration import ActionAdmin, ReadOnlyAdmin


@admin.register(Cluster)
class ClusterAdmin(ActionAdmin):
    """What connects to a cluster is edited here; what was observed is only shown."""

    app_actions = actions
    list_display = ("name", "enabled", "sandbox", "last_observed_at", "last_error")
    readonly_fields = (
        "last_observed_at",
        "accounted_at",
        "last_error",
        "lease_holder",
        "lease_epoch",
        "lease_expires_at",
        "changes",
    )
    fields = (*actions.FIELDS, *readonly_fields)

    def get_readonly_fields(self, request: HttpRequest, obj: Cluster | None = None) -> tuple:
        # The name is in URLs and events: another name is another cluster.
        return self.readonly_fields if obj is None else ("name", *self.readonly_fields)

    def has_delete_permission(self, request: HttpRequest, obj: Cluster | None = None) -> bool:
        # Its jobs, plans and decisions would go with it: disable it instead.
        return False

    def save_model(self, request: HttpRequest, obj: Cluster, form: ModelForm, change: bool) -> None:
        values = {name: value for name, value in form.cleaned_data.items() if name != "name"}
        row, _ = actions.register(obj.name, values, actor=request.user)
        obj.pk = row.pk
        obj._state.adding = False


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    list_display = ("name", "cluster", "pool", "ready", "unschedulable", "gone_at")
    list_filter = ("cluster", "ready", "unschedulable")
    search_fields = ("name",)


@admin.register(NodePool)
class NodePoolAdmin(ReadOnlyAdmin):
    list_display = ("name", "cluster")


@admin.register(CapacitySample)
class CapacitySampleAdmin(ReadOnlyAdmin):
    list_display = ("at", "cluster", "resource", "total")
    list_filter = ("cluster", "resource")
