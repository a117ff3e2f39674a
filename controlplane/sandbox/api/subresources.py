"""Subresources other than status: scale, eviction, binding, log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from controlplane.sandbox import patches
from controlplane.sandbox.api import requests
from controlplane.sandbox.api.requests import NoSuchPath, Target
from controlplane.sandbox.api.responses import answer
from controlplane.sandbox.api.writes import JSON_PATCH, MERGE_PATCH, STRATEGIC
from controlplane.sandbox.errors import BadRequest, Conflict, MethodNotAllowed, UnsupportedMediaType
from controlplane.sandbox.kinds import NAMESPACE, POD, KindInfo
from controlplane.sandbox.objects import Object, clone, meta, name_of
from controlplane.sandbox.schema.decode import decode
from controlplane.sandbox.store import Store

_FOLLOW_SECONDS = 0.1
_CHUNK = 64 << 10
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
# handled by the ordinary verbs with subresource=...
PLAIN = {"status", "finalize"}


class Subresources:
    """Serves `.../<name>/<subresource>`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def serve(self, request: Request, target: Target) -> Response:
        """Dispatch; NoSuchPath for a subresource that the kind doesn't have."""
        match target.subresource:
            case "scale" if target.kind.has_scale:
                return await self._scale(request, target)
            case "eviction" if target.kind is POD:
                return await self._evict(request, target)
            case "binding" if target.kind is POD:
                return await self._bind(request, target)
            case "log" if target.kind is POD:
                return await self._log(request, target)
            case "finalize" if target.kind is NAMESPACE:
                return await self._finalize(request, target)
        raise NoSuchPath

    # -- scale -----------------------------------------------------------------------------------

    async def _scale(self, request: Request, target: Target) -> Response:
        kind, name = target.kind, target.name or ""
        old = self._store.get(kind, target.namespace, name)
        scale = _scale_of(old)
        if request.method == "GET":
            return answer(scale)
        if request.method == "PUT":
            sent = await requests.body(request)
        elif request.method == "PATCH":
            sent = await self._patched(request, kind, scale)
        else:
            raise MethodNotAllowed(f"{request.method} is not supported on scale")
        sent, _ = decode("Scale", sent)
        given = meta(sent).get("resourceVersion")
        # read again: the body took time to arrive, and the object may have moved on
        old = self._store.get(kind, target.namespace, name)
        if given and given != meta(old)["resourceVersion"]:
            raise Conflict.modified(kind, name)
        if (meta(sent).get("name") or name) != name:
            raise BadRequest("the name of the Scale does not match the name on the URL")
        new = clone(old)
        new["spec"]["replicas"] = (sent.get("spec") or {}).get("replicas", 0)
        new = self._store.prepare_update(
            kind, new, manager=requests.manager(request), recorded_as="scale"
        )
        if not requests.dry_run(request.query_params):
            new = self._store.update_prepared(kind, old, new)
        return answer(_scale_of(new))

    async def _patched(self, request: Request, kind: KindInfo, scale: Object) -> Any:
        media = request.headers.get("content-type", "").partition(";")[0].strip()
        patch = await requests.body(request)
        if media == JSON_PATCH:
            return patches.json_patch(kind, scale, patch)
        if media in (MERGE_PATCH, STRATEGIC):
            return patches.merge_patch(scale, patch)
        raise UnsupportedMediaType(f"scale accepts {JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC}")

    # -- pods ------------------------------------------------------------------------------------

    async def _evict(self, request: Request, target: Target) -> Response:
        """policy/v1 eviction: a graceful delete (there are no disruption budgets here)."""
        _only(request, "POST")
        eviction, _ = decode("Eviction", await requests.body(request))
        name = target.name or ""
        if (meta(eviction).get("name") or name) != name:
            raise BadRequest("name in URL does not match name in Eviction object")
        options = eviction.get("deleteOptions") or {}
        self._store.get(POD, target.namespace, name)
        if not requests.dry_run(request.query_params, options):
            self._store.delete(
                POD,
                target.namespace,
                name,
                grace_seconds=options.get("gracePeriodSeconds"),
                preconditions=options.get("preconditions"),
                propagation=options.get("propagationPolicy"),
            )
        return answer(_SUCCESS, 201)

    async def _bind(self, request: Request, target: Target) -> Response:
        _only(request, "POST")
        binding, _ = decode("Binding", await requests.body(request))
        node = (binding.get("target") or {}).get("name") or ""
        if not node:
            raise BadRequest("Binding: target.name: Required value")
        if not requests.dry_run(request.query_params):
            self._store.bind(target.namespace or "", target.name or "", node)
        return answer(_SUCCESS, 201)

    async def _finalize(self, request: Request, target: Target) -> Response:
        _only(request, "PUT")
        sent, _ = decode("Namespace", await requests.body(request))
        old = self._store.get(NAMESPACE, None, target.name or "")
        new = clone(old)
        finalizers = (sent.get("spec") or {}).get("finalizers")
        new["spec"] = {"finalizers": finalizers} if finalizers else {}
        return answer(self._store.update(NAMESPACE, new, subresource="finalize"))

    # -- log -------------------------------------------------------------------------------------

    async def _log(self, request: Request, target: Target) -> Response:
        """A container's log as text: follow, tailLines, limitBytes."""
        _only(request, "GET")
        query = request.query_params
        pod = self._store.get(POD, target.namespace, target.name or "")
        container = _container(pod, query.get("container", ""))
        if requests.flag(query, "previous"):
            raise BadRequest(
                f'previous terminated container "{container}" in pod "{name_of(pod)}" not found'
            )
        tail = requests.number(query, "tailLines")
        limit = requests.number(query, "limitBytes")
        find = self._store.hooks.log_path
        path = find(pod, container) if find else None
        if path is None or not path.exists():
            if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                raise BadRequest(
                    f'container "{container}" in pod "{name_of(pod)}" is waiting to start: '
                    f"{_waiting(pod, container)}"
                )
            return Response(b"", media_type="text/plain")
        follow = requests.flag(query, "follow")
        lines = self._lines(pod, path, tail, limit, follow=follow)
        return StreamingResponse(lines, media_type="text/plain")

    async def _lines(
        self, pod: Object, path: Path, tail: int | None, limit: int | None, *, follow: bool
    ) -> AsyncIterator[bytes]:
        left = limit
        with path.open("rb") as file:
            if tail is not None:
                _seek_tail(file.fileno(), tail)
            while True:
                # asked before reading, so that what was written before the end is sent
                over = not follow or self._over(pod)
                while chunk := os.read(file.fileno(), _CHUNK):
                    if left is not None:
                        chunk, left = chunk[:left], left - len(chunk[:left])
                    yield chunk
                    if left == 0:
                        return
                if over:
                    return
                await asyncio.sleep(_FOLLOW_SECONDS)

    def _over(self, pod: Object) -> bool:
        """Whether the pod can write no more: finished, gone, or another of its name."""
        now = self._store.find(POD, meta(pod)["namespace"], name_of(pod))
        if now is None or meta(now)["uid"] != meta(pod)["uid"] or self._store.closing:
            return True
        return (now.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _only(request: Request, method: str) -> None:
    if request.method != method:
        raise MethodNotAllowed(f"{request.method} is not supported here, only {method}")


def _scale_of(obj: Object) -> Object:
    """autoscaling/v1 Scale of a Deployment or ReplicaSet."""
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    status: Object = {"replicas": (obj.get("status") or {}).get("replicas", 0)}
    status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta(obj)[key] for key in kept if key in meta(obj)},
        "spec": {"replicas": obj["spec"]["replicas"]},
        "status": status,
    }


def _container(pod: Object, wanted: str) -> str:
    spec = pod["spec"]
    names = [
        container["name"]
        for container in [*spec["containers"], *(spec.get("initContainers") or ())]
    ]
    if wanted:
        if wanted not in names:
            raise BadRequest(f"container {wanted} is not valid for pod {name_of(pod)}")
        return wanted
    if len(names) > 1:
        raise BadRequest(
            f"a container name must be specified for pod {name_of(pod)}, choose one of: "
            f"[{' '.join(names)}]"
        )
    return str(names[0])


def _waiting(pod: Object, container: str) -> str:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == container:
            reason = ((status.get("state") or {}).get("waiting") or {}).get("reason")
            return str(reason or "ContainerCreating")
    return "ContainerCreating"


def _seek_tail(fd: int, lines: int) -> None:
    """Place `fd` at the start of the last `lines` lines."""
    end = os.lseek(fd, 0, os.SEEK_END)
    at, found = end, 0
    while at > 0 and lines > 0:
        size = min(_CHUNK, at)
        at -= size
        block = os.pread(fd, size, at)
        for index in range(len(block) - 1, -1, -1):
            # the newline that ends the file ends the last line, it doesn't begin another
            if block[index] == 0x0A and at + index != end - 1:
                found += 1
                if found == lines:
                    os.lseek(fd, at + index + 1, os.SEEK_SET)
                    return
    os.lseek(fd, 0 if lines > 0 else end, os.SEEK_SET)
