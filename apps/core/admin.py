from django.contrib import admin

from apps.core.administration import ReadOnlyAdmin
from apps.core.models import AuditEntry


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor_name", "verb", "object_type", "object_name")
    list_filter = ("verb", "object_type")
    search_fields = ("actor_name", "object_name", "object_id")
