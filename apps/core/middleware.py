"""Content-Security-Policy: the browser loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

# Mantine and Unfold set style attributes; scripts come from our own files only.
PAGES = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
# Unfold's pages evaluate Alpine expressions and carry inline scripts.
ADMIN = PAGES.replace("script-src 'self'", "script-src 'self' 'unsafe-inline' 'unsafe-eval'")


class ContentSecurityPolicyMiddleware:
    sync_capable = True
    async_capable = True

    def __init__(
        self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]
    ) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest):
        if iscoroutinefunction(self):
            return self.acall(request)
        return with_policy(request, self.get_response(request))  # type: ignore[arg-type]

    async def acall(self, request: HttpRequest) -> HttpResponseBase:
        return with_policy(request, await self.get_response(request))  # type: ignore[misc]


def with_policy(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    policy = ADMIN if request.path.startswith("/admin/") else PAGES
    response.headers.setdefault("Content-Security-Policy", policy)
    return response
