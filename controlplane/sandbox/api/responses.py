"""Encodings of answers: JSON, Table, PartialObjectMetadata."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from controlplane.sandbox.errors import ApiError, NotAcceptable
from controlplane.sandbox.objects import Object, meta
from controlplane.sandbox.watching import encode


class View(Enum):
    """How objects are shown."""

    FULL = "full"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


def view_of(request: Request) -> View:
    """What the Accept header asks for; NotAcceptable when nothing in it is JSON."""
    accept = request.headers.get("accept", "*/*")
    for choice in accept.split(","):
        media, *parameters = [part.strip() for part in choice.split(";")]
        if media not in ("application/json", "*/*", "application/*", ""):
            continue
        wanted = dict(p.split("=", 1) for p in parameters if "=" in p)
        match wanted.get("as"):
            case None:
                return View.FULL
            case "Table" if wanted.get("v") == "v1":
                return View.TABLE
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return View.METADATA
    if re.search(r"text/|html", accept):  # a browser
        return View.FULL
    raise NotAcceptable(
        f"only the following media types are accepted: application/json (got {accept!r})"
    )


def partial(obj: Object) -> Object:
    """An object's PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta(obj),
    }


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response from data or from ready bytes."""
    raw = content if isinstance(content, bytes) else encode(content)
    return Response(raw, status, headers, media_type="application/json")


def failure(error: ApiError) -> Response:
    """The Status of an error."""
    return answer(error.status(), error.code, error.headers)


def success(kind: str, name: str, uid: str = "", group: str = "") -> Object:
    """The Status of a success."""
    details = {"name": name, "group": group, "kind": kind, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
