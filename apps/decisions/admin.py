from django.contrib import admin

from apps.core.administration import ReadOnlyAdmin
from apps.decisions.models import Command, Decision, Plan


@admin.register(Plan)
class PlanAdmin(ReadOnlyAdmin):
    list_display = ("number", "cluster", "planned_at", "last_seen_at", "duration_ms", "lease_epoch")
    list_filter = ("cluster",)
    exclude = ("inputs",)


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    list_display = ("at", "job", "current", "desired", "reason_code", "sentence")
    list_filter = ("reason_code",)
    list_select_related = ("job",)


@admin.register(Command)
class CommandAdmin(ReadOnlyAdmin):
    list_display = (
        "created_at", "job", "kind", "from_replicas", "to_replicas", "state",
        "attempts", "result_sentence",
    )  # fmt: skip
    list_filter = ("state", "kind")
    list_select_related = ("job",)
