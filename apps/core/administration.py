"""Admin pages' common ground: read-only pages, and pages that write through an app's actions."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import models
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from apps.core.models import AuditEntry

SHOWN_ENTRIES = 20


class ReadOnlyAdmin(ModelAdmin):
    """To look at: these rows are written by the control plane alone."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ActionAdmin(ModelAdmin):
    """Writes go through `app_actions`: create(values, actor), change(row, values, actor) and
    delete(row, actor). The audit trail of the object is shown below the form."""

    app_actions: ModuleType
    readonly_fields = ("changes",)

    @property
    def written_fields(self) -> tuple[str, ...]:
        return self.app_actions.FIELDS

    def save_model(
        self, request: HttpRequest, obj: models.Model, form: ModelForm, change: bool
    ) -> None:
        given = {name: form.cleaned_data[name] for name in self.written_fields}
        if change:
            self.app_actions.change(obj, given, actor=request.user)
        else:
            obj.pk = self.app_actions.create(given, actor=request.user).pk
            obj._state.adding = False

    def delete_model(self, request: HttpRequest, obj: models.Model) -> None:
        self.app_actions.delete(obj, actor=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> None:
        for obj in queryset:
            try:
                self.delete_model(request, obj)
            except ValidationError as error:
                self.message_user(request, " ".join(error.messages), messages.ERROR)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """A delete that the action refuses comes back as its sentence."""
        try:
            return super().delete_view(request, object_id, extra_context)
        except ValidationError as error:
            self.message_user(request, " ".join(error.messages), messages.ERROR)
            return self.response_post_save_change(request, self.get_object(request, object_id))

    def changes(self, obj: models.Model) -> SafeString:
        """The newest entries of the audit trail about this object."""
        if obj.pk is None:
            return format_html("{}", "Nothing yet.")
        entries = AuditEntry.objects.filter(
            object_type=obj._meta.label_lower, object_id=str(obj.pk)
        )[:SHOWN_ENTRIES]
        rows = format_html_join(
            "",
            "<li><strong>{}</strong> {} {}<br><code>{}</code></li>",
            (
                (
                    entry.at.strftime("%Y-%m-%d %H:%M:%S UTC"),
                    entry.actor_name,
                    entry.verb,
                    difference(entry),
                )
                for entry in entries
            ),
        )
        return format_html("<ul>{}</ul>", rows) if rows else format_html("{}", "Nothing yet.")

    changes.short_description = "History"  # type: ignore[attr-defined]


def difference(entry: AuditEntry) -> str:
    """Fields that an entry changed: `max_replicas: 4 → 8`."""
    before, after = entry.before or {}, entry.after or {}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return "; ".join(
        f"{name}: {json.dumps(before.get(name))} → {json.dumps(after.get(name))}" for name in names
    )
