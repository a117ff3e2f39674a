"""Errors of the API, each with the `Status` object that the real server would send.

Source: apimachinery `pkg/api/errors` (reasons, codes and the wording of messages).
"""

from __future__ import annotations

from typing import Any

from controlplane.sandbox.kinds import KindInfo


class ApiError(Exception):
    """An answer other than success: HTTP code, reason and the details of a Status."""

    code = 500
    reason = "InternalError"
    # of an expired continue token: the one that reads on, inconsistently
    list_continue = ""

    def __init__(
        self,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}
        self.headers = headers or {}

    def status(self) -> dict[str, Any]:
        """The `Status` object (kind Status, apiVersion v1) for this error."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.list_continue} if self.list_continue else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }
        if not self.details:
            del body["details"]
        return body


def _details(kind: KindInfo, name: str) -> dict[str, Any]:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in details.items() if value}


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"

    @classmethod
    def of(cls, kind: KindInfo, name: str) -> NotFound:
        return cls(f'{kind.resource} "{name}" not found', details=_details(kind, name))


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"

    @classmethod
    def of(cls, kind: KindInfo, name: str) -> AlreadyExists:
        return cls(f'{kind.resource} "{name}" already exists', details=_details(kind, name))


class Conflict(ApiError):
    code, reason = 409, "Conflict"

    @classmethod
    def of(cls, kind: KindInfo, name: str, why: str) -> Conflict:
        message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
        return cls(message, details=_details(kind, name))

    @classmethod
    def modified(cls, kind: KindInfo, name: str) -> Conflict:
        return cls.of(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version "
            "and try again",
        )


class Expired(ApiError):
    """410: a resourceVersion or a continue token that is too old."""

    code, reason = 410, "Expired"

    @classmethod
    def version(cls, wanted: int, oldest: int) -> Expired:
        return cls(f"too old resource version: {wanted} ({oldest})")


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Cause:
    """One field's error, worded as apimachinery's field.Error does."""

    __slots__ = ("field", "message", "reason")

    def __init__(self, reason: str, field: str, message: str) -> None:
        self.reason = reason
        self.field = field
        self.message = message

    def __repr__(self) -> str:
        return f"Cause({self.field}: {self.message})"

    @classmethod
    def required(cls, field: str, detail: str = "") -> Cause:
        return cls(
            "FieldValueRequired", field, "Required value" + (f": {detail}" if detail else "")
        )

    @classmethod
    def invalid(cls, field: str, value: object, detail: str) -> Cause:
        return cls("FieldValueInvalid", field, f"Invalid value: {_quoted(value)}: {detail}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> Cause:
        return cls("FieldValueForbidden", field, f"Forbidden: {detail}")

    @classmethod
    def unsupported(cls, field: str, value: object, supported: list[str]) -> Cause:
        known = ", ".join(f'"{item}"' for item in supported)
        return cls(
            "FieldValueNotSupported",
            field,
            f"Unsupported value: {_quoted(value)}: supported values: {known}",
        )


def _quoted(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "..."


class Invalid(ApiError):
    """422: the object breaks a rule; `causes` name field and value."""

    code, reason = 422, "Invalid"

    def __init__(self, kind: KindInfo, name: str, causes: list[Cause]) -> None:
        texts = [f"{cause.field}: {cause.message}" for cause in causes]
        joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
        qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        details = {"name": name, "group": kind.group, "kind": kind.kind}
        super().__init__(
            f'{qualified} "{name}" is invalid: {joined}',
            details={
                **{key: value for key, value in details.items() if value},
                "causes": [
                    {"reason": cause.reason, "message": cause.message, "field": cause.field}
                    for cause in causes
                ],
            },
        )
        self.causes = causes


class ApplyConflict(ApiError):
    """409 of a server-side apply: fields that other managers own."""

    code, reason = 409, "Conflict"

    def __init__(self, conflicts: list[tuple[str, str]]) -> None:
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "{manager}"',
                "field": path,
            }
            for manager, path in conflicts
        ]
        noun = "conflict" if len(causes) == 1 else "conflicts"
        first = ", ".join(f"{c['message']}: {c['field']}" for c in causes)
        super().__init__(
            f"Apply failed with {len(causes)} {noun}: {first}", details={"causes": causes}
        )


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class Timeout(ApiError):
    code, reason = 504, "Timeout"


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"
