"""Who may follow the live stream. Core knows no tokens: the settings name who reads them."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest
from django.utils.module_loading import import_string


class NotAllowed(Exception):
    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def allow(request: HttpRequest) -> Callable[[], bool]:
    """A check to repeat while the stream is open. Raises NotAllowed (the answer is a 401)."""
    if request.headers.get("Authorization"):
        return import_string(settings.CONCERTINA_STREAM_TOKENS)(request)
    if not get_user(request).is_authenticated:
        raise NotAllowed("Sign in, or send Authorization: Token <value>.", "not_authenticated")
    key = request.session.session_key

    def still_signed_in() -> bool:
        # A copy of the request's session, read again: sign-out deletes the row.
        request.session = type(request.session)(key)
        return get_user(request).is_authenticated

    return still_signed_in
