from django.urls import re_path
from rest_framework.routers import SimpleRouter

from apps.clusters.api.views import CLUSTER_NAME
from apps.decisions.api.views import (
    DecisionViewSet,
    JobDecisionViewSet,
    PendingView,
    PlanViewSet,
)
from apps.training.api.urls import of_job

router = SimpleRouter()
router.register("decisions", DecisionViewSet, basename="decisions")
router.register("plans", PlanViewSet, basename="plans")
urlpatterns = [
    *router.urls,
    of_job("decisions", JobDecisionViewSet),
    re_path(
        rf"^clusters/(?P<name>{CLUSTER_NAME})/pending/$",
        PendingView.as_view(),
        name="clusters-pending",
    ),
]
