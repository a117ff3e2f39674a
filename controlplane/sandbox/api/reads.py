"""GET: one object, lists in pages, watches."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from controlplane.sandbox import tables
from controlplane.sandbox.api import requests
from controlplane.sandbox.api.requests import Target
from controlplane.sandbox.api.responses import View, answer, partial, view_of
from controlplane.sandbox.errors import BadRequest, Expired, Timeout
from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object, meta, name_of, namespace_of
from controlplane.sandbox.selectors import FieldSelector, LabelSelector
from controlplane.sandbox.store import Store
from controlplane.sandbox.watching import Event, Stored, Watch, encode

# a watcher that is this far behind is dropped and lists again
WATCH_LIMIT = 20_000
BOOKMARK_SECONDS = 10.0
_WATCH_SECONDS = (1800, 3600)
_SNAPSHOTS = 64
_SNAPSHOT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind a request means."""

    kind: KindInfo
    namespace: str | None
    labels: LabelSelector | None
    fields: FieldSelector | None

    def matches(self, obj: Object | None) -> bool:
        return (
            obj is not None
            and (not self.namespace or namespace_of(obj) == self.namespace)
            and (self.labels is None or self.labels.matches(meta(obj).get("labels")))
            and (self.fields is None or self.fields.matches(obj))
        )

    def stored(self, store: Store) -> list[Stored]:
        return store.list_stored(self.kind, self.namespace, labels=self.labels, fields=self.fields)


def selection_of(target: Target, query: Mapping[str, str]) -> Selection:
    """The selectors of a query; BadRequest for what can't be read."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return Selection(
        target.kind,
        target.namespace,
        LabelSelector.parse(labels) if labels else None,
        FieldSelector.parse(fields, target.kind) if fields else None,
    )


class Reader:
    """Answers GETs from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages: OrderedDict[str, tuple[float, list[Stored]]] = OrderedDict()
        # fault injection: answer the next watch that is too old with HTTP 410
        self.expired_as_status = False

    async def get(self, request: Request, target: Target) -> Response:
        """One object (also for GET .../status)."""
        assert target.name is not None
        stored = self._store.stored(target.kind, target.namespace, target.name)
        match view_of(request):
            case View.TABLE:
                wanted = request.query_params.get("includeObject", "Metadata")
                table = tables.table(target.kind, [stored.obj], self._store.clock.now(), wanted)
                table["metadata"] = {"resourceVersion": meta(stored.obj)["resourceVersion"]}
                return answer(table)
            case View.METADATA:
                return answer(partial(stored.obj))
        return answer(stored.raw)

    async def list(self, request: Request, target: Target) -> Response:
        """A list, whole or a page of it."""
        query = request.query_params
        selection = selection_of(target, query)
        limit = requests.number(query, "limit") or 0
        token = query.get("continue", "")
        wanted = requests.version(query)
        if token:
            if wanted:
                raise BadRequest("specifying resource version is not allowed when using continue")
            at, items = self._continued(token, selection)
        else:
            at, items = self._store.resource_version, selection.stored(self._store)
            if wanted is not None and wanted > at:
                raise Timeout(
                    f"Too large resource version: {wanted}, current: {at}",
                    details={
                        "causes": [
                            {
                                "reason": "ResourceVersionTooLarge",
                                "message": "Too large resource version",
                            }
                        ],
                        "retryAfterSeconds": 1,
                    },
                )
            if query.get("resourceVersionMatch") == "Exact" and wanted not in (None, at):
                raise Expired.version(wanted or 0, at)
        metadata: dict[str, Any] = {"resourceVersion": str(at)}
        if limit and len(items) > limit:
            page, rest = items[:limit], items[limit:]
            metadata["continue"] = self._remember(at, page[-1], rest)
            if selection.labels is None and selection.fields is None:
                metadata["remainingItemCount"] = len(rest)
            items = page
        return self._listed(request, target.kind, metadata, items)

    def _listed(
        self, request: Request, kind: KindInfo, metadata: Object, items: list[Stored]
    ) -> Response:
        match view_of(request):
            case View.TABLE:
                objects = [stored.obj for stored in items]
                wanted = request.query_params.get("includeObject", "Metadata")
                table = tables.table(kind, objects, self._store.clock.now(), wanted)
                return answer({**table, "metadata": metadata})
            case View.METADATA:
                listed = {
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                    "items": [partial(stored.obj) for stored in items],
                }
                return answer(listed)
        head = {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
        }
        body = b",".join(stored.item for stored in items)
        return answer(encode(head)[:-1] + b',"items":[' + body + b"]}")

    def _remember(self, at: int, last: Stored, rest: list[Stored]) -> str:
        """Keep the rest of the list as it is now, so that pages are of one version."""
        now = time.monotonic()
        start = f"{namespace_of(last.obj)}/{name_of(last.obj)}"
        token = base64.urlsafe_b64encode(
            encode({"v": "meta.k8s.io/v1", "rv": at, "start": start, "n": random.getrandbits(48)})
        ).decode()
        self._pages[token] = (now + _SNAPSHOT_SECONDS, rest)
        while len(self._pages) > _SNAPSHOTS or next(iter(self._pages.values()))[0] < now:
            self._pages.popitem(last=False)
        return token

    def _continued(self, token: str, selection: Selection) -> tuple[int, list[Stored]]:
        try:
            read = json.loads(base64.urlsafe_b64decode(token.encode()))
            at, start = int(read["rv"]), str(read["start"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadRequest(f"continue key is not valid: {error}") from error
        kept = self._pages.get(token)
        # -1: the token that an expired one is answered with; it reads on, inconsistently
        if at == -1 or kept is None or kept[0] < time.monotonic() or at < self._expired_before():
            if at == -1:
                rest = [
                    stored
                    for stored in selection.stored(self._store)
                    if [namespace_of(stored.obj), name_of(stored.obj)] > start.split("/", 1)
                ]
                return self._store.resource_version, rest
            raise self._expired(start)
        return at, kept[1]

    def _expired_before(self) -> int:
        return self._store.compacted_version

    @staticmethod
    def _expired(start: str) -> Expired:
        fresh = encode({"v": "meta.k8s.io/v1", "rv": -1, "start": start})
        error = Expired(
            "The provided continue parameter is too old to display a consistent list result. You "
            "can start a new list without the continue parameter, or use the continue token in "
            "this response to retrieve the remainder of the results."
        )
        error.list_continue = base64.urlsafe_b64encode(fresh).decode()
        return error

    async def watch(self, request: Request, target: Target) -> Response:
        """A stream of events, one JSON document a line."""
        query = request.query_params
        selection = selection_of(target, query)
        since = requests.version(query)
        view = view_of(request)
        initial = requests.flag(query, "sendInitialEvents")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            raise BadRequest(
                "resourceVersionMatch: Required value: sendInitialEvents needs NotOlderThan"
            )
        seconds = requests.number(query, "timeoutSeconds") or random.randint(*_WATCH_SECONDS)
        bookmarks = requests.flag(query, "allowWatchBookmarks")
        start: list[Stored] = []
        error: Expired | None = None
        watch: Watch | None = None
        try:
            from_now = not since or initial
            if from_now:
                start = selection.stored(self._store)
            watch = self._store.watch(target.kind, None if from_now else since, limit=WATCH_LIMIT)
        except Expired as expired:
            if self.expired_as_status:
                self.expired_as_status = False
                raise
            error = expired
        stream = _Stream(self._store, selection, view, query.get("includeObject", "Metadata"))
        lines = stream.run(
            watch, error, start, seconds, bookmarks=bookmarks, mark_initial=initial and bookmarks
        )
        return StreamingResponse(lines, media_type="application/json")


class _Stream:
    """Turns one watcher's events into lines."""

    def __init__(self, store: Store, selection: Selection, view: View, include: str) -> None:
        self._store = store
        self._selection = selection
        self._view = view
        self._include = include
        self._first = True

    async def run(
        self,
        watch: Watch | None,
        error: Expired | None,
        start: list[Stored],
        seconds: float,
        *,
        bookmarks: bool,
        mark_initial: bool,
    ) -> AsyncIterator[bytes]:
        if watch is None:
            assert error is not None
            yield self._error(error)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        # as the real server: every so often, and two seconds before the end
        next_mark = min(loop.time() + BOOKMARK_SECONDS, max(deadline - 2, loop.time() + 0.1))
        version = self._store.resource_version
        try:
            lines = [self._line("ADDED", stored) for stored in start]
            if mark_initial:
                lines.append(self._bookmark(version, end_of_initial=True))
            yield b"".join(lines)
            while (now := loop.time()) < deadline:
                until = min(deadline, next_mark) if bookmarks else deadline
                if await watch.wait(max(until - now, 0.001)):
                    events = watch.drain()
                    version = events[-1].resource_version
                    if text := b"".join(self._of(event) for event in events):
                        yield text
                elif watch.ended:
                    return
                if bookmarks and loop.time() >= next_mark:
                    version = max(version, self._store.resource_version)
                    yield self._bookmark(version)
                    next_mark = loop.time() + BOOKMARK_SECONDS
                    if next_mark > deadline - 2 > loop.time():
                        next_mark = deadline - 2
        except Expired as expired:
            yield self._error(expired)
        finally:
            watch.close()

    def _of(self, event: Event) -> bytes:
        """The line for one event, as the selection sees it; b"" when it doesn't."""
        after = event.type != "DELETED" and self._selection.matches(event.object)
        before = event.type != "ADDED" and self._selection.matches(event.previous)
        if after:
            assert event.stored is not None
            return self._line("MODIFIED" if before else "ADDED", event.stored)
        if not before:
            return b""
        if event.type == "DELETED":
            assert event.stored is not None
            return self._line("DELETED", event.stored)
        # it no longer matches: the watcher sees the last version that did, at this version
        assert event.previous is not None
        metadata = {**event.previous["metadata"], "resourceVersion": str(event.resource_version)}
        return self._line("DELETED", Stored({**event.previous, "metadata": metadata}))

    def _line(self, change: str, stored: Stored) -> bytes:
        match self._view:
            case View.TABLE:
                now = self._store.clock.now()
                table = tables.table(self._selection.kind, [stored.obj], now, self._include)
                table["metadata"] = {"resourceVersion": meta(stored.obj)["resourceVersion"]}
                if not self._first:
                    table["columnDefinitions"] = None
                self._first = False
                raw = encode(table)
            case View.METADATA:
                raw = encode(partial(stored.obj))
            case _:
                raw = stored.raw
        return b'{"type":"' + change.encode() + b'","object":' + raw + b"}\n"

    def _bookmark(self, version: int, *, end_of_initial: bool = False) -> bytes:
        kind = self._selection.kind
        metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
        if end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if self._view is not View.FULL:
            obj |= {"kind": self._view.value, "apiVersion": "meta.k8s.io/v1"}
        return encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    @staticmethod
    def _error(error: Expired) -> bytes:
        return encode({"type": "ERROR", "object": error.status()}) + b"\n"
