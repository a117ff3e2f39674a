"""Clusters: capacity now and over time, nodes."""

from __future__ import annotations

import django_filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import generics, mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters import selectors, settings_actions
from apps.clusters.api.serializers import (
    CapacityQuerySerializer,
    CapacitySeriesSerializer,
    ClusterDetailSerializer,
    ClusterSerializer,
    ClusterSettingsSerializer,
    NodeSerializer,
)
from apps.clusters.models import Cluster, ClusterSettings, Node
from apps.core.api.filters import StrictFilterSet
from apps.core.api.permissions import ReadAllWriteWithPermission

CLUSTER_NAME = r"[a-z0-9][-a-z0-9]*"


@extend_schema(tags=["clusters"])
@extend_schema_view(
    list=extend_schema(operation_id="clusters_list", summary="Clusters and their capacity now"),
    retrieve=extend_schema(operation_id="clusters_retrieve", summary="One cluster, by name"),
)
class ClusterViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    queryset = Cluster.objects.all()
    lookup_field = "name"
    lookup_value_regex = CLUSTER_NAME
    cursor_ordering = ("name",)

    def get_queryset(self) -> QuerySet[Cluster]:
        return selectors.clusters()

    def get_serializer_class(self) -> type[ClusterSerializer]:
        return ClusterDetailSerializer if self.action == "retrieve" else ClusterSerializer

    @extend_schema(
        operation_id="clusters_capacity",
        summary="Capacity over time",
        parameters=[CapacityQuerySerializer],
        responses=CapacitySeriesSerializer,
        filters=False,
    )
    @action(detail=True, pagination_class=None)
    def capacity(self, request: Request, name: str) -> Response:
        cluster = self.get_object()
        query = CapacityQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        return Response(
            CapacitySeriesSerializer(
                {
                    "cluster": cluster.name,
                    **asked,
                    "series": selectors.capacity_series(
                        cluster, asked["resource"], asked["since"], asked["until"], asked["points"]
                    ),
                }
            ).data
        )


@extend_schema(tags=["policies"])
@extend_schema_view(
    get=extend_schema(
        operation_id="clusters_settings_retrieve",
        summary="Settings of a cluster; the defaults where nothing was set",
    ),
    patch=extend_schema(
        operation_id="clusters_settings_partial_update", summary="Change some settings"
    ),
)
class ClusterSettingsView(generics.RetrieveUpdateAPIView):
    http_method_names = ["get", "patch", "head", "options"]
    queryset = ClusterSettings.objects.all()
    serializer_class = ClusterSettingsSerializer
    permission_classes = [ReadAllWriteWithPermission]

    def get_object(self) -> ClusterSettings:
        return selectors.settings_of(generics.get_object_or_404(Cluster, name=self.kwargs["name"]))

    def perform_update(self, serializer: ClusterSettingsSerializer) -> None:
        serializer.instance = settings_actions.put(
            serializer.instance.cluster, serializer.validated_data, actor=self.request.user
        )


class NodeFilter(StrictFilterSet):
    pool = django_filters.CharFilter(field_name="pool__name")
    ready = django_filters.BooleanFilter()

    class Meta:
        model = Node
        fields: list[str] = []


@extend_schema(tags=["clusters"])
@extend_schema_view(
    list=extend_schema(operation_id="clusters_nodes", summary="The nodes of a cluster"),
)
class NodeViewSet(mixins.ListModelMixin, viewsets.GenericViewSet):
    queryset = Node.objects.none()
    serializer_class = NodeSerializer
    filterset_class = NodeFilter
    cursor_ordering = ("name", "id")

    def get_queryset(self) -> QuerySet[Node]:
        if getattr(self, "swagger_fake_view", False):
            return Node.objects.none()
        return selectors.live_nodes(self.cluster)

    @property
    def cluster(self) -> Cluster:
        if not hasattr(self, "_cluster"):
            self._cluster = viewsets.generics.get_object_or_404(Cluster, name=self.kwargs["name"])
        return self._cluster

    def get_serializer_context(self) -> dict:
        context = super().get_serializer_context()
        if not getattr(self, "swagger_fake_view", False):
            context["fresh"] = selectors.is_fresh(self.cluster, timezone.now())
        return context
