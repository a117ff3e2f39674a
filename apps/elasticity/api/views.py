from __future__ import annotations

from django.db.models import Count, Q
from drf_spectacular.utils import extend_schema, extend_schema_view

from apps.core.api.actions import ActionViewSet
from apps.elasticity import actions
from apps.elasticity.api.serializers import ElasticityPolicySerializer
from apps.elasticity.models import ElasticityPolicy


@extend_schema(tags=["policies"])
@extend_schema_view(
    list=extend_schema(operation_id="elasticity_policies_list"),
    retrieve=extend_schema(operation_id="elasticity_policies_retrieve"),
    create=extend_schema(operation_id="elasticity_policies_create"),
    update=extend_schema(operation_id="elasticity_policies_update"),
    partial_update=extend_schema(operation_id="elasticity_policies_partial_update"),
    destroy=extend_schema(operation_id="elasticity_policies_destroy"),
)
class ElasticityPolicyViewSet(ActionViewSet):
    actions = actions
    queryset = ElasticityPolicy.objects.annotate(
        job_count=Count("jobs", filter=Q(jobs__finished_at__isnull=True))
    )
    serializer_class = ElasticityPolicySerializer
    lookup_value_regex = r"[0-9]{1,18}"
    cursor_ordering = ("name",)
