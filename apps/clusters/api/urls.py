from django.urls import re_path
from rest_framework.routers import SimpleRouter

from apps.clusters.api.views import (
    CLUSTER_NAME,
    ClusterSettingsView,
    ClusterViewSet,
    NodeViewSet,
)

router = SimpleRouter()
router.register("clusters", ClusterViewSet, basename="clusters")
urlpatterns = [
    *router.urls,
    re_path(
        rf"^clusters/(?P<name>{CLUSTER_NAME})/nodes/$",
        NodeViewSet.as_view({"get": "list"}),
        name="clusters-nodes",
    ),
    re_path(
        rf"^clusters/(?P<name>{CLUSTER_NAME})/settings/$",
        ClusterSettingsView.as_view(),
        name="clusters-settings",
    ),
]
