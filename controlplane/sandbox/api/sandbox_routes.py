"""Routes that no real server has: fault injection, for demos and tests.

POST /sandbox/v1/namespaces/<ns>/pods/<name>/signal {"signal": "KILL"}
POST /sandbox/v1/expire {"watches": true, "as": "event" | "status"}
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from controlplane.sandbox.api import requests
from controlplane.sandbox.api.reads import Reader
from controlplane.sandbox.api.requests import NoSuchPath
from controlplane.sandbox.api.responses import answer, success
from controlplane.sandbox.errors import BadRequest, MethodNotAllowed, ServiceUnavailable
from controlplane.sandbox.kinds import POD
from controlplane.sandbox.objects import meta
from controlplane.sandbox.store import Store

SIGNALS = ("KILL", "TERM", "INT", "STOP", "CONT", "USR1", "USR2")
_SIGNAL_PATH = re.compile(r"^/sandbox/v1/namespaces/([^/]+)/pods/([^/]+)/signal$")


async def serve(request: Request, store: Store, reader: Reader) -> Response:
    """Dispatch a /sandbox/v1 path."""
    path = request.url.path
    if request.method != "POST":
        raise MethodNotAllowed(f"{request.method} is not supported here, only POST")
    if found := _SIGNAL_PATH.match(path):
        return await _signal(request, store, found[1], found[2])
    if path == "/sandbox/v1/expire":
        return await _expire(request, store, reader)
    raise NoSuchPath


async def _signal(request: Request, store: Store, namespace: str, name: str) -> Response:
    """Deliver a signal to a pod's process; to an emulated pod KILL means that it fails."""
    body = await requests.body(request)
    signal = body.get("signal") if isinstance(body, dict) else None
    if signal not in SIGNALS:
        known = ", ".join(f'"{item}"' for item in SIGNALS)
        raise BadRequest(f'signal: Unsupported value: "{signal}": supported values: {known}')
    pod = store.get(POD, namespace, name)
    if store.hooks.send_signal is None:
        raise ServiceUnavailable("no node emulator is running: nothing can receive the signal")
    store.hooks.send_signal(pod, signal)
    return answer(success(POD.plural, name, meta(pod)["uid"]))


async def _expire(request: Request, store: Store, reader: Reader) -> Response:
    """Forget the history of changes, so that older resourceVersions get 410."""
    body = await requests.body(request, optional=True) or {}
    how = body.get("as", "event") if isinstance(body, dict) else None
    if how not in ("event", "status"):
        raise BadRequest(f'as: Unsupported value: "{how}": supported values: "event", "status"')
    reader.expired_as_status = how == "status"
    store.expire(watches=bool(body.get("watches")))
    return answer(success("history", ""))
