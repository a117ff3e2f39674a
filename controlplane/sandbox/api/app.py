"""The ASGI application: authentication, dispatch, errors as Status objects."""

from __future__ import annotations

import hmac
import logging

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from controlplane.sandbox.api import discovery, openapi, requests, sandbox_routes
from controlplane.sandbox.api.reads import Reader
from controlplane.sandbox.api.requests import NoSuchPath, Target, target_of
from controlplane.sandbox.api.responses import answer, failure
from controlplane.sandbox.api.subresources import PLAIN, Subresources
from controlplane.sandbox.api.writes import Writer
from controlplane.sandbox.errors import ApiError, MethodNotAllowed, Unauthorized
from controlplane.sandbox.kinds import NAMESPACE
from controlplane.sandbox.store import Store

logger = logging.getLogger("sandbox.api")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_HEALTH = ("/healthz", "/livez", "/readyz")


class Api:
    """Dispatches requests on one store; `token` is the bearer token that clients must have."""

    def __init__(self, store: Store, token: str) -> None:
        self._store = store
        self._token = token
        self._reader = Reader(store)
        self._writer = Writer(store)
        self._subresources = Subresources(store)

    async def handle(self, request: Request) -> Response:
        """Answer one request; every error becomes a Status."""
        try:
            return await self._route(request)
        except ApiError as error:
            return failure(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            logger.exception("%s %s", request.method, request.url.path)
            return failure(ApiError("an internal error occurred; the sandbox's log has it"))

    async def _route(self, request: Request) -> Response:
        path = request.url.path
        if path in _HEALTH:
            return PlainTextResponse("ok")
        if path.rstrip("/") == "/version":
            return answer(discovery.VERSION)
        self._authenticate(request)
        if path.startswith("/openapi/"):
            return self._openapi(path)
        if path.startswith("/sandbox/v1/"):
            return await sandbox_routes.serve(request, self._store, self._reader)
        if (document := discovery.document(path.rstrip("/"))) is not None:
            return answer(document)
        return await self._resource(request, target_of(path))

    def _authenticate(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            given.strip().encode(), self._token.encode()
        ):
            raise Unauthorized("Unauthorized")

    def _openapi(self, path: str) -> Response:
        place = path.removeprefix("/openapi/").rstrip("/")
        if place == "v2":
            return answer(openapi.v2())
        if place == "v3":
            return answer(openapi.index())
        document = openapi.v3(place.removeprefix("v3/"))
        if document is None:
            raise NoSuchPath
        return answer(document)

    async def _resource(self, request: Request, target: Target) -> Response:
        if target.subresource is not None:
            if target.subresource not in PLAIN or target.subresource == "finalize":
                return await self._subresources.serve(request, target)
            if not target.kind.has_status:
                raise NoSuchPath
        method = "GET" if request.method == "HEAD" else request.method
        if target.name is None:
            return await self._collection(request, target, method)
        match method:
            case "GET":
                return await self._reader.get(request, target)
            case "PUT":
                return await self._writer.replace(request, target)
            case "PATCH":
                return await self._writer.patch(request, target)
            case "DELETE" if target.subresource is None:
                return await self._writer.delete(request, target)
        raise MethodNotAllowed("the server does not allow this method on the requested resource")

    async def _collection(self, request: Request, target: Target, method: str) -> Response:
        in_namespace = target.namespace is not None or not target.kind.namespaced
        match method:
            case "GET" if requests.flag(request.query_params, "watch"):
                return await self._reader.watch(request, target)
            case "GET":
                return await self._reader.list(request, target)
            case "POST" if in_namespace:
                return await self._writer.create(request, target)
            case "DELETE" if in_namespace and target.kind is not NAMESPACE:
                return await self._writer.delete_collection(request, target)
        raise MethodNotAllowed("the server does not allow this method on the requested resource")


def create_app(store: Store, token: str) -> Starlette:
    """The application for one store."""
    api = Api(store, token)
    return Starlette(routes=[Route("/{path:path}", api.handle, methods=_METHODS)])
