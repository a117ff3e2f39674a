"""The audit trail."""

from __future__ import annotations

import django_filters
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, viewsets

from apps.core.api.filters import StrictFilterSet
from apps.core.api.serializers import AuditEntrySerializer
from apps.core.models import AuditEntry


class AuditFilter(StrictFilterSet):
    object_type = django_filters.CharFilter()
    object_id = django_filters.CharFilter()
    actor = django_filters.CharFilter(field_name="actor_name")
    verb = django_filters.CharFilter()
    since = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte")

    class Meta:
        model = AuditEntry
        fields: list[str] = []


@extend_schema(tags=["audit"])
@extend_schema_view(list=extend_schema(operation_id="audit_list", summary="The audit trail"))
class AuditViewSet(mixins.ListModelMixin, viewsets.GenericViewSet):
    queryset = AuditEntry.objects.all()
    serializer_class = AuditEntrySerializer
    filterset_class = AuditFilter
    cursor_ordering = ("-at", "-id")
