from django.apps import AppConfig
from prometheus_client import REGISTRY


class DecisionsConfig(AppConfig):
    name = "apps.decisions"
    verbose_name = "Decisions"

    def ready(self) -> None:
        from apps.decisions.metrics import PlanCollector

        REGISTRY.register(PlanCollector())
