from django.apps import AppConfig


class PrioritiesConfig(AppConfig):
    name = "apps.priorities"
    verbose_name = "Priorities"
