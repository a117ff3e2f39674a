"""Job tokens: `Authorization: Bearer jt_…`. Their scope is one job's reports."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import AnonymousUser
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.accounts import tokens
from apps.accounts.authentication import bearer
from apps.training.models import JobToken

KEYWORD = "Bearer"
USED_GRANULARITY = timedelta(minutes=1)


class JobTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[AnonymousUser, JobToken] | None:
        value = bearer(get_authorization_header(request), KEYWORD)
        if value is None:
            return None
        token = (
            JobToken.objects.select_related("job__cluster", "job__policy")
            .filter(digest=tokens.digest(value))
            .first()
        )
        if token is None:
            raise AuthenticationFailed(
                "No such job token. Use the one in the job's Secret (CONCERTINA_TOKEN).",
                "unknown_token",
            )
        if token.revoked_at is not None:
            raise AuthenticationFailed("This job token was revoked.", "revoked_token")
        now = timezone.now()
        if token.last_used_at is None or now - token.last_used_at > USED_GRANULARITY:
            JobToken.objects.filter(pk=token.pk).update(last_used_at=now)
        return AnonymousUser(), token

    def authenticate_header(self, request: Request) -> str:
        return KEYWORD


class JobTokenScheme(OpenApiAuthenticationExtension):
    target_class = JobTokenAuthentication
    name = "jobToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A job's own token, from its Secret: `Authorization: Bearer jt_…`",
        }
