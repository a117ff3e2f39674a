"""Reads of accounts."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from apps.accounts import tokens
from apps.accounts.models import ApiToken

# last_used_at is for people who tidy up: a write a minute is enough, one a request is too much.
USED_GRANULARITY = timedelta(minutes=1)


class TokenRefused(Exception):
    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def token_by_value(value: str) -> ApiToken:
    """The live token with this value, its user loaded.

    Raises TokenRefused: unknown_token, revoked_token, expired_token, inactive_user.
    """
    now = timezone.now()
    token = ApiToken.objects.select_related("user").filter(digest=tokens.digest(value)).first()
    if token is None:
        raise TokenRefused(
            "No such token. Make one under Tokens and send it whole.", "unknown_token"
        )
    if token.revoked_at is not None:
        raise TokenRefused(f"Token {token.name!r} was revoked.", "revoked_token")
    if token.expires_at is not None and token.expires_at <= now:
        raise TokenRefused(f"Token {token.name!r} has expired. Make a new one.", "expired_token")
    if not token.user.is_active:
        raise TokenRefused(f"User {token.user.username!r} is not active.", "inactive_user")
    if token.last_used_at is None or now - token.last_used_at > USED_GRANULARITY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token
