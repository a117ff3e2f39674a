from __future__ import annotations

from django.contrib import admin
from django.forms import ModelForm
from django.http import HttpRequest

from apps.clusters import actions, settings_actions
from apps.clusters.models import CapacitySample, Cluster, ClusterSettings, Node, NodePool
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


@admin.register(ClusterSettings)
class ClusterSettingsAdmin(ActionAdmin):
    """Deleted, a cluster has the defaults again: all is off."""

    app_actions = settings_actions
    list_display = ("cluster", "max_disruption_ratio", "forecast_quantile", "updated_at")
    fieldsets = (
        (None, {"fields": ("cluster", "topology_levels")}),
        (
            "Kept free",
            {"fields": ("spares", "reserves", ("forecast_quantile", "forecast_horizon_s"))},
        ),
        ("Disruption", {"fields": (("max_disruption_ratio", "terminating_timeout_s"),)}),
        (
            "Nodes that hurt jobs or leave",
            {
                "fields": (
                    ("offender_faults", "offender_window_s", "offender_rest_s"),
                    ("departure_notice_s", "bind_timeout_s"),
                )
            },
        ),
        ("History", {"fields": ("changes",)}),
    )

    def get_readonly_fields(
        self, request: HttpRequest, obj: ClusterSettings | None = None
    ) -> tuple:
        return self.readonly_fields if obj is None else ("cluster", *self.readonly_fields)

    def save_model(
        self, request: HttpRequest, obj: ClusterSettings, form: ModelForm, change: bool
    ) -> None:
        given = {name: form.cleaned_data[name] for name in self.written_fields}
        row = settings_actions.put(obj.cluster, given, actor=request.user)
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
