from django.apps import AppConfig
from prometheus_client import REGISTRY


class TrainingConfig(AppConfig):
    name = "apps.training"
    verbose_name = "Training"

    def ready(self) -> None:
        from apps.training.metrics import JobCollector

        REGISTRY.register(JobCollector())
