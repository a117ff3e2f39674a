"""JSON bodies, bounded: what is too large or too deep is refused, not run out of memory on."""

from __future__ import annotations

import io
from typing import IO, Any

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser, JSONParser


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


def bounded(stream: IO[bytes]) -> bytes:
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise TooLarge(f"The body has more than {limit} bytes. Send less at a time.")
    return body


class BoundedJSONParser(JSONParser):
    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> Any:
        body = bounded(stream)
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError:
            raise ParseError("The JSON is nested too deeply.") from None


class RawJSONParser(BaseParser):
    """The bytes as they came, for a view that has its own decoder."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> bytes:
        return bounded(stream)
