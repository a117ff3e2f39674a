"""Sign-in attempts are few: guessing a password online must not pay (OWASP ASVS 2.2.1)."""

from __future__ import annotations

import hashlib

from django.core.cache import caches
from redis import RedisError
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView


class SignInThrottle(SimpleRateThrottle):
    """Ten attempts a minute for each address and user name together.

    Counts are shared through Redis; while that is away each process counts for itself.
    """

    scope = "sign_in"
    rate = "10/min"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        if request.method != "POST":
            return None
        username = str(request.data.get("username", "")) if hasattr(request.data, "get") else ""
        ident = f"{self.get_ident(request)}\n{username.casefold()}"
        digest = hashlib.sha256(ident.encode("utf-8", "replace")).hexdigest()
        return f"throttle:sign_in:{digest}"

    def allow_request(self, request: Request, view: APIView) -> bool:
        self.cache = caches["default"]
        try:
            return super().allow_request(request, view)
        except RedisError:
            self.cache = caches["local"]
            return super().allow_request(request, view)
