"""Every error of the API has one shape: {"errors": [{"field", "code", "message"}]}.

`field` is null where the error is about no one field; nested fields are joined with dots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.exceptions import ValidationError as ModelError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import csrf, defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler

NON_FIELD = "non_field_errors"


class Refused(exceptions.APIException):
    """A request that is well formed but may not be carried out now, with the reason and a code."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "refused"

    def __init__(self, message: str, code: str, status_code: int = status.HTTP_409_CONFLICT):
        super().__init__(message, code)
        self.status_code = status_code


class Unavailable(exceptions.APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"


def handle(exc: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler: same statuses, our shape."""
    if isinstance(exc, ModelError):
        exc = exceptions.ValidationError(_model_errors(exc))
    elif isinstance(exc, Http404):
        exc = exceptions.NotFound()
    elif isinstance(exc, PermissionDenied):
        exc = exceptions.PermissionDenied()
    response = exception_handler(exc, context)
    if response is None or not isinstance(exc, exceptions.APIException):
        return response
    response.data = {"errors": list(flatten(exc.get_full_details()))}
    return response


def _model_errors(exc: ModelError) -> dict[str, list[exceptions.ErrorDetail]]:
    found = exc.error_dict if hasattr(exc, "error_dict") else {"__all__": exc.error_list}
    return {
        NON_FIELD if field == "__all__" else field: [
            exceptions.ErrorDetail(message, code=error.code or "invalid")
            for error in errors
            for message in error.messages
        ]
        for field, errors in found.items()
    }


def flatten(details: Any, field: str | None = None) -> Iterator[dict[str, str | None]]:
    """The leaves of DRF's nested error details, each with the path to its field."""
    if isinstance(details, dict) and set(details) == {"message", "code"}:
        yield {"field": field, "code": str(details["code"]), "message": str(details["message"])}
    elif isinstance(details, dict):
        for name, inner in details.items():
            path = field if name == NON_FIELD else f"{field}.{name}" if field else str(name)
            yield from flatten(inner, path)
    else:
        nested = any(isinstance(i, dict) and set(i) != {"message", "code"} for i in details)
        for index, inner in enumerate(details):
            if inner:
                yield from flatten(inner, f"{field}.{index}" if nested and field else field)


def error_response(status_code: int, code: str, message: str) -> JsonResponse:
    """The same shape for views that aren't DRF's."""
    return JsonResponse(
        {"errors": [{"field": None, "code": code, "message": message}]}, status=status_code
    )


@csrf_exempt
def not_found(request: HttpRequest, *_: Any, **__: Any) -> JsonResponse:
    return error_response(404, "not_found", f"There is nothing at {request.path}.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The API's shape for the API, Django's page for forms. (DRF's own views say it themselves;
    this is for those that check before DRF does.)"""
    if is_api(request):
        return error_response(403, "csrf_failed", f"CSRF check failed: {reason}")
    return csrf.csrf_failure(request, reason)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_api(request):
        return error_response(400, "bad_request", "The request can't be understood.")
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    if is_api(request):
        return error_response(500, "server_error", "Our fault: the server's log says more.")
    return defaults.server_error(request)


def is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")
