from django.apps import AppConfig
from prometheus_client import REGISTRY


class ClustersConfig(AppConfig):
    name = "apps.clusters"
    verbose_name = "Clusters"

    def ready(self) -> None:
        from apps.clusters.metrics import ClusterCollector

        REGISTRY.register(ClusterCollector())
