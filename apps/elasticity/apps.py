from django.apps import AppConfig


class ElasticityConfig(AppConfig):
    name = "apps.elasticity"
    verbose_name = "Elasticity"
