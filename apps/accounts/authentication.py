"""API tokens: `Authorization: Token ct_…`."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.accounts import selectors
from apps.accounts.models import ApiToken, User
from apps.core.stream.gate import NotAllowed

KEYWORD = "Token"


class ApiTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        value = bearer(get_authorization_header(request), KEYWORD)
        if value is None:
            return None
        try:
            token = selectors.token_by_value(value)
        except selectors.TokenRefused as refused:
            raise AuthenticationFailed(str(refused), refused.code) from None
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return KEYWORD


def bearer(header: bytes, keyword: str) -> str | None:
    """The value after `keyword`, or None where the header is absent or of another scheme."""
    parts = header.split()
    if not parts or parts[0].lower() != keyword.lower().encode():
        return None
    if len(parts) != 2:
        raise AuthenticationFailed(
            f"Write the header as 'Authorization: {keyword} <value>', one value, no spaces in it.",
            "malformed_header",
        )
    try:
        return parts[1].decode("ascii")
    except UnicodeDecodeError:
        raise AuthenticationFailed(
            "The token holds a non-ASCII byte.", "malformed_header"
        ) from None


class ApiTokenScheme(OpenApiAuthenticationExtension):
    target_class = ApiTokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "A personal token: `Authorization: Token ct_…`",
        }


def stream_token(request: HttpRequest) -> Callable[[], bool]:
    """For the live stream: the token's check, to repeat while it is open. Raises NotAllowed."""
    try:
        value = bearer(request.headers.get("Authorization", "").encode(), KEYWORD)
        if value is None:
            raise NotAllowed("Write 'Authorization: Token <value>'.", "malformed_header")
        selectors.token_by_value(value)
    except AuthenticationFailed as failed:
        raise NotAllowed(str(failed.detail), "malformed_header") from None
    except selectors.TokenRefused as refused:
        raise NotAllowed(str(refused), refused.code) from None

    def still_valid() -> bool:
        try:
            selectors.token_by_value(value)
        except selectors.TokenRefused:
            return False
        return True

    return still_valid
