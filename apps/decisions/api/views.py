"""The feed of decisions, single plans, and the demand that waits."""

from __future__ import annotations

import django_filters
from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, viewsets
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.clusters.models import Cluster
from apps.core.api.filters import StrictFilterSet
from apps.decisions import selectors
from apps.decisions.api.serializers import DecisionSerializer, PendingSerializer, PlanSerializer
from apps.decisions.models import Decision, Plan
from apps.training.api.views import OfJobViewSet

PK = r"[0-9]{1,18}"


class DecisionFilter(StrictFilterSet):
    job = django_filters.UUIDFilter(field_name="job_id")
    cluster = django_filters.CharFilter(field_name="job__cluster__name")
    reason_code = django_filters.CharFilter()
    since = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte")
    with_command = django_filters.BooleanFilter(
        field_name="command", lookup_expr="isnull", exclude=True,
        label="Only those that changed something (or, false, nothing).",
    )  # fmt: skip

    class Meta:
        model = Decision
        fields: list[str] = []


@extend_schema(tags=["decisions"])
@extend_schema_view(
    list=extend_schema(operation_id="decisions_list", summary="Decisions, newest first"),
    retrieve=extend_schema(operation_id="decisions_retrieve", summary="One decision"),
)
class DecisionViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    queryset = Decision.objects.all()
    serializer_class = DecisionSerializer
    filterset_class = DecisionFilter
    lookup_value_regex = PK
    cursor_ordering = ("-at", "-id")

    def get_queryset(self) -> QuerySet[Decision]:
        return selectors.decisions()


@extend_schema(tags=["jobs"])
@extend_schema_view(
    list=extend_schema(operation_id="jobs_decisions", summary="A job's decisions, newest first")
)
class JobDecisionViewSet(OfJobViewSet):
    queryset = Decision.objects.select_related("plan__cluster", "job", "command")
    serializer_class = DecisionSerializer
    cursor_ordering = ("-at", "-id")


@extend_schema(tags=["decisions"])
@extend_schema_view(retrieve=extend_schema(operation_id="plans_retrieve", summary="One plan"))
class PlanViewSet(mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    queryset = Plan.objects.select_related("cluster").prefetch_related(
        Prefetch("decisions", selectors.decisions())
    )
    serializer_class = PlanSerializer
    lookup_value_regex = PK


@extend_schema(tags=["clusters"])
class PendingView(APIView):
    @extend_schema(
        operation_id="clusters_pending",
        summary="Demand that waits, from the last plan",
        responses=PendingSerializer,
    )
    def get(self, request: Request, name: str) -> Response:
        cluster = get_object_or_404(Cluster, name=name)
        return Response(PendingSerializer(selectors.pending(cluster, timezone.now())).data)
