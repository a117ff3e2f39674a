from __future__ import annotations

import django_filters
from drf_spectacular.utils import extend_schema, extend_schema_view

from apps.core.api.actions import ActionViewSet
from apps.core.api.filters import StrictFilterSet
from apps.priorities import actions, cohort_actions, queue_actions
from apps.priorities.api.serializers import (
    CohortSerializer,
    PriorityClassSerializer,
    QueueSerializer,
)
from apps.priorities.models import Cohort, PriorityClass, Queue


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


class ClusterFilter(StrictFilterSet):
    cluster = django_filters.CharFilter(field_name="cluster__name")


@extend_schema(tags=["policies"])
@extend_schema_view(
    list=extend_schema(operation_id="queues_list", summary="Queues with their quotas"),
    retrieve=extend_schema(operation_id="queues_retrieve"),
    create=extend_schema(operation_id="queues_create"),
    update=extend_schema(operation_id="queues_update"),
    partial_update=extend_schema(operation_id="queues_partial_update"),
    destroy=extend_schema(operation_id="queues_destroy"),
)
class QueueViewSet(ActionViewSet):
    actions = queue_actions
    queryset = Queue.objects.select_related("cluster").prefetch_related("quotas")
    serializer_class = QueueSerializer
    filterset_class = ClusterFilter
    lookup_value_regex = r"[0-9]{1,18}"
    cursor_ordering = ("name", "id")


@extend_schema(tags=["policies"])
@extend_schema_view(
    list=extend_schema(operation_id="cohorts_list", summary="What cohorts own themselves"),
    retrieve=extend_schema(operation_id="cohorts_retrieve"),
    create=extend_schema(operation_id="cohorts_create"),
    update=extend_schema(operation_id="cohorts_update"),
    partial_update=extend_schema(operation_id="cohorts_partial_update"),
    destroy=extend_schema(operation_id="cohorts_destroy"),
)
class CohortViewSet(ActionViewSet):
    actions = cohort_actions
    queryset = Cohort.objects.select_related("cluster").prefetch_related("quotas")
    serializer_class = CohortSerializer
    filterset_class = ClusterFilter
    lookup_value_regex = r"[0-9]{1,18}"
    cursor_ordering = ("name", "id")
