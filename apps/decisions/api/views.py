"""The feed of decisions, single plans, the demand that waits and why, and notices."""

from __future__ import annotations

import django_filters
from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, viewsets
from rest_framework.exceptions import NotFound
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.clusters.models import Cluster
from apps.core.api.filters import StrictFilterSet
from apps.decisions import selectors
from apps.decisions.api.serializers import (
    DecisionSerializer,
    NoticesSerializer,
    PendingQuerySerializer,
    PendingSerializer,
    PlanSerializer,
    WhyPendingSerializer,
)
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
        parameters=[PendingQuerySerializer],
        responses=PendingSerializer,
    )
    def get(self, request: Request, name: str) -> Response:
        query = PendingQuerySerializer(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        cluster = get_object_or_404(Cluster, name=name)
        found = selectors.pending(cluster, timezone.now(), **query.validated_data)
        return Response(PendingSerializer(found).data)


@extend_schema(tags=["clusters"])
class WhyPendingView(APIView):
    @extend_schema(
        operation_id="clusters_why_pending",
        summary="Why one workload or pod waits, or has no more, from the last plan",
        responses=WhyPendingSerializer,
    )
    def get(
        self, request: Request, name: str, kind: str, namespace: str, workload: str
    ) -> Response:
        cluster = get_object_or_404(Cluster, name=name)
        asked = f"{kind}/{namespace}/{workload}"
        found = selectors.why_pending(cluster, asked, timezone.now())
        if found is None:
            raise NotFound(
                f"Nothing named {asked} waits on {name}, and no managed job of that name runs "
                "there. A pod that has an owner is asked for by the owner's kind and name."
            )
        return Response(WhyPendingSerializer(found).data)


@extend_schema(tags=["clusters"])
class NoticesView(APIView):
    @extend_schema(
        operation_id="clusters_notices",
        summary="What an operator should know, from the last plan",
        responses=NoticesSerializer,
    )
    def get(self, request: Request, name: str) -> Response:
        cluster = get_object_or_404(Cluster, name=name)
        return Response(NoticesSerializer(selectors.notices(cluster, timezone.now())).data)
