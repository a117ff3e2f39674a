"""`/metrics` for Prometheus. Each app adds its own collector in `metrics.py`."""

from __future__ import annotations

import hmac

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from django_prometheus.exports import ExportToDjangoView


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Open unless CONCERTINA_METRICS_TOKEN is set; then `Authorization: Bearer <it>`."""
    token = settings.CONCERTINA_METRICS_TOKEN
    given = request.headers.get("Authorization", "")
    if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        return HttpResponse("Send Authorization: Bearer <metrics token>.\n", status=401)
    return ExportToDjangoView(request)
