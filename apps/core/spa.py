"""The page: one HTML document for every address that isn't the API's; the browser does the rest."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_safe
from django_vite.core.exceptions import DjangoViteAssetNotFoundError


@require_safe
@ensure_csrf_cookie
def page(request: HttpRequest) -> HttpResponse:
    try:
        response = render(request, "core/page.html")
    except (DjangoViteAssetNotFoundError, FileNotFoundError):
        return HttpResponse(
            "The front end isn't built. Run `make build`, then reload.\n",
            status=503,
            content_type="text/plain; charset=utf-8",
        )
    # The document names hashed files: an old copy of it would ask for files that are gone.
    response.headers["Cache-Control"] = "no-cache"
    return response
