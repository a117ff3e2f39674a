"""Every URL of the web process."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from apps.core import health, metrics, spa
from apps.core.api import errors
from apps.core.stream.views import stream

api = [
    path("", include("apps.core.api.urls")),
    path("", include("apps.accounts.api.urls")),
    path("", include("apps.clusters.api.urls")),
    path("", include("apps.priorities.api.urls")),
    path("", include("apps.elasticity.api.urls")),
    path("", include("apps.training.api.urls")),
    path("", include("apps.decisions.api.urls")),
    path("stream", stream, name="stream"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    re_path(r"", errors.not_found),
]

urlpatterns = [
    path("api/v1/", include(api)),
    re_path(r"^api/", errors.not_found),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("admin/", admin.site.urls),
    # A missing asset is a 404, not the page.
    re_path(rf"^(?!{settings.STATIC_URL.lstrip('/')}).*$", spa.page, name="page"),
]

handler400 = "apps.core.api.errors.bad_request"
handler500 = "apps.core.api.errors.server_error"
