from __future__ import annotations

from drf_spectacular.utils import extend_schema, extend_schema_view

from apps.core.api.actions import ActionViewSet
from apps.priorities import actions
from apps.priorities.api.serializers import PriorityClassSerializer
from apps.priorities.models import PriorityClass


@extend_schema(tags=["policies"])
@extend_schema_view(
    list=extend_schema(operation_id="priority_classes_list", summary="Highest first"),
    retrieve=extend_schema(operation_id="priority_classes_retrieve"),
    create=extend_schema(operation_id="priority_classes_create"),
    update=extend_schema(operation_id="priority_classes_update"),
    partial_update=extend_schema(operation_id="priority_classes_partial_update"),
    destroy=extend_schema(operation_id="priority_classes_destroy"),
)
class PriorityClassViewSet(ActionViewSet):
    actions = actions
    queryset = PriorityClass.objects.all()
    serializer_class = PriorityClassSerializer
    lookup_value_regex = r"[0-9]{1,18}"
    cursor_ordering = ("-value", "name")
