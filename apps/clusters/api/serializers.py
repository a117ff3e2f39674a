"""Clusters as the API shows them."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.clusters import selectors
from apps.clusters.choices import CapacityState
from apps.clusters.models import Cluster, ClusterSettings, Node
from apps.clusters.settings_actions import FIELDS as SETTINGS
from apps.core.api.ranges import SeriesQuerySerializer
from apps.core.api.serializers import CountsField
from controlplane.engine.cluster_policy import MOST_LEVELS
from controlplane.engine.queues import MOST_QUOTA

CapacityStatesSerializer = type(
    "CapacityStatesSerializer",
    (serializers.Serializer,),
    {
        "__doc__": "Accelerators by state: disjoint, adding up to the total.",
        **{state.value: serializers.IntegerField() for state in CapacityState},
    },
)


class CapacityNowSerializer(serializers.Serializer):
    """Values are null while they aren't known; `age_s` says how old the last knowledge is."""

    resource = serializers.CharField()
    pool = serializers.CharField(allow_null=True, help_text="null: the whole cluster.")
    total = serializers.IntegerField(allow_null=True)
    states = CapacityStatesSerializer(allow_null=True)
    holders = CountsField(allow_null=True, help_text="{team or workload: accelerators held}")
    observed_at = serializers.DateTimeField(allow_null=True)
    age_s = serializers.FloatField(allow_null=True)


class ClusterSerializer(serializers.ModelSerializer):
    node_count = serializers.IntegerField()
    age_s = serializers.SerializerMethodField(help_text="Since the last complete observation.")
    stale = serializers.SerializerMethodField(
        help_text="Capacity is too old to be shown as that of now: it is null."
    )
    capacity = serializers.SerializerMethodField()

    class Meta:
        model = Cluster
        fields = [
            "name", "sandbox", "enabled", "created_at", "last_observed_at", "age_s",
            "accounted_at", "stale", "last_error", "last_error_at", "node_count", "capacity",
        ]  # fmt: skip
        read_only_fields = fields

    def now(self) -> datetime:
        return self.context.setdefault("now", timezone.now())

    def get_age_s(self, cluster: Cluster) -> float | None:
        observed = cluster.last_observed_at
        return (self.now() - observed).total_seconds() if observed else None

    def get_stale(self, cluster: Cluster) -> bool:
        return not selectors.is_fresh(cluster, self.now())

    @extend_schema_field(CapacityNowSerializer(many=True))
    def get_capacity(self, cluster: Cluster) -> list[dict]:
        return CapacityNowSerializer(selectors.capacity_now(cluster, self.now()), many=True).data


class ClusterDetailSerializer(ClusterSerializer):
    pools = serializers.SerializerMethodField(help_text="Capacity by node pool.")
    lease_holder = serializers.CharField(help_text="The watcher that may act; empty: none.")

    class Meta(ClusterSerializer.Meta):
        fields = [
            *ClusterSerializer.Meta.fields,
            "pools", "lease_holder", "lease_epoch", "lease_expires_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(CapacityNowSerializer(many=True))
    def get_pools(self, cluster: Cluster) -> list[dict]:
        return CapacityNowSerializer(
            selectors.capacity_by_pool(cluster, self.now()), many=True
        ).data


class AmountsField(serializers.DictField):
    """{resource: accelerators}"""

    child = serializers.IntegerField(min_value=0, max_value=MOST_QUOTA)


class ClusterSettingsSerializer(serializers.ModelSerializer):
    """What an administrator sets for the whole cluster; all is off by default."""

    cluster = serializers.CharField(source="cluster.name", read_only=True)
    topology_levels = serializers.ListField(
        child=serializers.CharField(max_length=317),
        required=False,
        max_length=MOST_LEVELS,
        help_text=ClusterSettings._meta.get_field("topology_levels").help_text,
    )
    spares = AmountsField(
        required=False, help_text=ClusterSettings._meta.get_field("spares").help_text
    )
    reserves = AmountsField(
        required=False, help_text=ClusterSettings._meta.get_field("reserves").help_text
    )

    class Meta:
        model = ClusterSettings
        fields = ["cluster", *SETTINGS, "updated_at"]
        read_only_fields = ["updated_at"]
        extra_kwargs = {"updated_at": {"allow_null": True}}


class TaintSerializer(serializers.Serializer):
    key = serializers.CharField()
    value = serializers.CharField(allow_blank=True)
    effect = serializers.CharField()


class NodeResourceSerializer(serializers.Serializer):
    resource = serializers.CharField()
    total = serializers.IntegerField()
    states = CapacityStatesSerializer(allow_null=True)


class NodeSerializer(serializers.ModelSerializer):
    pool = serializers.CharField(source="pool.name", default=None, allow_null=True)
    taints = TaintSerializer(many=True)
    resources = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = [
            "id", "name", "uid", "pool", "ready", "unschedulable", "taints", "resources",
            "first_seen_at", "gone_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(NodeResourceSerializer(many=True))
    def get_resources(self, node: Node) -> list[dict]:
        return selectors.node_view(node, fresh=self.context.get("fresh", False))["resources"]


class CapacityQuerySerializer(SeriesQuerySerializer):
    resource = serializers.CharField(max_length=253, help_text="Such as nvidia.com/gpu.")


class CapacityPointSerializer(serializers.Serializer):
    at = serializers.DateTimeField()
    total = serializers.IntegerField()
    states = CapacityStatesSerializer()
    holders = CountsField()


class CapacitySeriesSerializer(serializers.Serializer):
    cluster = serializers.CharField()
    resource = serializers.CharField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    series = CapacityPointSerializer(many=True)
