from django.urls import re_path
from rest_framework.routers import SimpleRouter

from apps.clusters.api.views import CLUSTER_NAME
from apps.decisions.api.views import (
    DecisionViewSet,
    JobDecisionViewSet,
    NoticesView,
    PendingView,
    PlanViewSet,
    WhyPendingView,
)
from apps.training.api.urls import of_job

# As Kubernetes names them: a kind in CamelCase, a DNS label, a DNS subdomain.
WORKLOAD = (
    r"(?P<kind>[A-Za-z][A-Za-z0-9]{0,62})/(?P<namespace>[a-z0-9][-a-z0-9]{0,62})"
    r"/(?P<workload>[a-z0-9][-.a-z0-9]{0,252})"
)

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
    re_path(
        rf"^clusters/(?P<name>{CLUSTER_NAME})/pending/{WORKLOAD}/$",
        WhyPendingView.as_view(),
        name="clusters-why-pending",
    ),
    re_path(
        rf"^clusters/(?P<name>{CLUSTER_NAME})/notices/$",
        NoticesView.as_view(),
        name="clusters-notices",
    ),
]
