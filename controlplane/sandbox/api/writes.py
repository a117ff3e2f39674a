"""POST, PUT, PATCH and DELETE of objects and of their status."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from controlplane.sandbox import managed, patches
from controlplane.sandbox.api import requests
from controlplane.sandbox.api.reads import selection_of
from controlplane.sandbox.api.requests import Target
from controlplane.sandbox.api.responses import answer, success
from controlplane.sandbox.errors import (
    BadRequest,
    Cause,
    Conflict,
    Invalid,
    NotFound,
    UnsupportedMediaType,
)
from controlplane.sandbox.kinds import EVENT, LEASE, NAMESPACE, NODE, POD, KindInfo
from controlplane.sandbox.objects import Object, clone, meta, name_of, namespace_of
from controlplane.sandbox.schema.decode import decode
from controlplane.sandbox.store import Store

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC, APPLY)
_PROPAGATION = ("Orphan", "Background", "Foreground")


class Writer:
    """Carries out writes on the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, request: Request, target: Target) -> Response:
        """POST to a collection."""
        kind = target.kind
        obj, warnings = _decoded(request, kind, _addressed(target, await requests.body(request)))
        new = self._store.prepare_create(kind, obj, manager=requests.manager(request))
        if not requests.dry_run(request.query_params):
            new = self._store.create_prepared(kind, new)
        return answer(new, 201, warnings)

    async def replace(self, request: Request, target: Target) -> Response:
        """PUT of an object or its status."""
        kind = target.kind
        obj, warnings = _decoded(request, kind, _addressed(target, await requests.body(request)))
        if self._store.find(kind, target.namespace, target.name or "") is None:
            if kind not in (LEASE, EVENT) or target.subresource:
                raise NotFound.of(kind, target.name or "")
            new = self._store.prepare_create(kind, obj, manager=requests.manager(request))
            if not requests.dry_run(request.query_params):
                new = self._store.create_prepared(kind, new)
            return answer(new, 201, warnings)
        if not kind.unconditional_update and not meta(obj).get("resourceVersion"):
            cause = Cause.invalid(
                "metadata.resourceVersion", "0x0", "must be specified for an update"
            )
            raise Invalid(kind, name_of(obj), [cause])
        return answer(self._write(request, target, obj), 200, warnings)

    async def patch(self, request: Request, target: Target) -> Response:
        """PATCH of an object or its status, by content type."""
        kind, name = target.kind, target.name or ""
        media = request.headers.get("content-type", "").partition(";")[0].strip()
        if media not in _PATCHES:
            raise UnsupportedMediaType(
                "the body of the request was in an unknown format - accepted media types "
                f"include: {', '.join(_PATCHES)}"
            )
        raw = await requests.raw_body(request)
        patch = requests.parse(raw, yaml_too=media == APPLY)
        if media == APPLY:
            return self._apply(request, target, patch)
        if requests.flag(request.query_params, "force"):
            raise BadRequest("force: Forbidden: may not be specified for non-apply patch")
        old = self._store.get(kind, target.namespace, name)
        if media == JSON_PATCH:
            new = patches.json_patch(kind, old, patch)
        elif media == MERGE_PATCH:
            new = patches.merge_patch(old, patch)
        else:
            new = patches.strategic_merge_patch(kind, old, patch)
        try:
            obj, warnings = _decoded(request, kind, new)
        except BadRequest as error:
            if "strict decoding" in error.message:
                raise
            # what a patch makes is invalid where what a client sends would be a bad request
            raise Invalid(kind, name, [Cause.invalid("patch", "", error.message)]) from error
        if (name_of(obj), namespace_of(obj)) != (name_of(old), namespace_of(old)):
            raise BadRequest(
                f"the name of the object ({name_of(obj)}) does not match the name on the URL "
                f"({name})"
            )
        return answer(self._write(request, target, obj), 200, warnings)

    def _write(self, request: Request, target: Target, obj: Object) -> Object:
        kind = target.kind
        old = self._store.get(kind, target.namespace, target.name or "")
        new = self._store.prepare_update(
            kind, obj, subresource=target.subresource, manager=requests.manager(request)
        )
        if requests.dry_run(request.query_params):
            return new
        return self._store.update_prepared(kind, old, new)

    def _apply(self, request: Request, target: Target, patch: Any) -> Response:
        """Server-side apply: create or merge, with field ownership."""
        kind, query = target.kind, request.query_params
        name = target.name or ""
        if not query.get("fieldManager"):
            raise BadRequest(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required "
                "for apply patch"
            )
        if not isinstance(patch, dict) or (patch.get("kind"), patch.get("apiVersion")) != (
            kind.kind,
            kind.api_version,
        ):
            raise BadRequest(
                f"an applied object must have kind {kind.kind} and apiVersion {kind.api_version}"
            )
        if meta(patch).get("managedFields") is not None:
            raise BadRequest("metadata.managedFields must be nil")
        obj, warnings = _decoded(request, kind, _addressed(target, patch))
        obj = _applicable(kind, obj, target.subresource)
        live = self._store.find(kind, target.namespace, name)
        dry = requests.dry_run(query)
        clock = self._store.clock
        options: dict[str, Any] = {
            "force": requests.flag(query, "force"),
            "subresource": target.subresource,
            "now": clock.now(),
        }
        if live is None:
            if target.subresource or meta(obj).get("uid") or meta(obj).get("resourceVersion"):
                raise NotFound.of(kind, name)
            merged = managed.apply(kind, _bare(obj), obj, query["fieldManager"], **options)
            new = self._store.prepare_create(kind, merged)
            return answer(new if dry else self._store.create_prepared(kind, new), 201, warnings)
        given = meta(obj).get("resourceVersion")
        if given and given != meta(live)["resourceVersion"]:
            raise Conflict.modified(kind, name)
        merged = managed.apply(kind, live, obj, query["fieldManager"], **options)
        new = self._store.prepare_update(
            kind, merged, subresource=target.subresource, managed=False
        )
        return answer(new if dry else self._store.update_prepared(kind, live, new), 200, warnings)

    async def delete(self, request: Request, target: Target) -> Response:
        """DELETE of one object."""
        options = await _delete_options(request)
        kind, name = target.kind, target.name or ""
        old = self._store.get(kind, target.namespace, name)
        if options.pop("dry"):
            return answer(old if kind is POD else success(kind.plural, name, group=kind.group))
        last = self._store.delete(kind, target.namespace, name, **options)
        # pods and namespaces answer with the object; so does what finalizers still hold
        if kind in (POD, NAMESPACE) or self._store.find(kind, target.namespace, name):
            return answer(last)
        return answer(success(kind.plural, name, meta(last)["uid"], kind.group))

    async def delete_collection(self, request: Request, target: Target) -> Response:
        """DELETE of everything that a selector means."""
        options = await _delete_options(request)
        dry = options.pop("dry")
        chosen = selection_of(target, request.query_params).stored(self._store)
        at = str(self._store.resource_version)
        for stored in chosen:
            if not dry:
                self._store.delete(
                    target.kind,
                    meta(stored.obj).get("namespace"),
                    name_of(stored.obj),
                    **options,
                )
        listed = {
            "kind": f"{target.kind.kind}List",
            "apiVersion": target.kind.api_version,
            "metadata": {"resourceVersion": at},
            "items": [stored.obj for stored in chosen],
        }
        return answer(listed)


def _addressed(target: Target, obj: Any) -> Object:
    """The sent object with the path's name and namespace; BadRequest when they differ."""
    kind = target.kind
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
        raise BadRequest(f"the body must be a {kind.kind} object")
    if obj.get("kind", kind.kind) != kind.kind or (
        obj.get("apiVersion", kind.api_version) != kind.api_version
    ):
        raise BadRequest(
            f"{obj.get('kind')} in version {obj.get('apiVersion')!r} cannot be handled as a "
            f"{kind.kind} of {kind.api_version}: use that kind and apiVersion"
        )
    metadata = dict(obj.get("metadata") or {})
    for key, wanted in (("namespace", target.namespace), ("name", target.name)):
        if wanted is None:
            continue
        given = metadata.setdefault(key, wanted) or wanted
        if given != wanted:
            raise BadRequest(
                f"the {key} of the provided object does not match the {key} sent on the request "
                f"({given} is not {wanted})"
            )
        metadata[key] = wanted
    return {**obj, "metadata": metadata}


def _decoded(request: Request, kind: KindInfo, obj: Object) -> tuple[Object, dict[str, str] | None]:
    """Decode by schema; unknown fields are an error, a warning or nothing, as asked."""
    mode = request.query_params.get("fieldValidation", "Warn") or "Warn"
    if mode not in ("Ignore", "Warn", "Strict"):
        raise BadRequest(
            f'fieldValidation: Unsupported value: "{mode}": supported values: "Ignore", '
            '"Strict", "Warn"'
        )
    decoded, unknown = decode(kind.kind, obj)
    if unknown and mode == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise BadRequest(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict '
            f"decoding error: {listed}"
        )
    if unknown and mode == "Warn":
        text = ", ".join(f'unknown field \\"{path}\\"' for path in unknown)
        text = text.encode("ascii", "replace").decode()
        return decoded, {"Warning": f'299 - "{text}"'}
    return decoded, None


def _applicable(kind: KindInfo, obj: Object, subresource: str | None) -> Object:
    """What an apply may set: through status only the status, else everything but it."""
    if subresource == "status":
        return {key: obj[key] for key in ("kind", "apiVersion", "metadata", "status") if key in obj}
    if kind.has_status and kind is not NODE:
        return {key: value for key, value in obj.items() if key != "status"}
    return obj


def _bare(obj: Object) -> Object:
    metadata = {k: v for k, v in meta(obj).items() if k in ("name", "namespace")}
    return {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": metadata}


async def _delete_options(request: Request) -> dict[str, Any]:
    """DeleteOptions from the body, else from the query; BadRequest."""
    query = request.query_params
    body = await requests.body(request, optional=True)
    if body is not None and not isinstance(body, dict):
        raise BadRequest("the body of a DELETE must be DeleteOptions")
    options, _ = decode("DeleteOptions", body or {})
    grace = options.get("gracePeriodSeconds")
    if grace is None:
        grace = requests.number(query, "gracePeriodSeconds")
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy") or None
    orphan = options.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = requests.flag(query, "orphanDependents")
    if orphan is not None:
        if propagation:
            raise BadRequest(
                "DeleteOptions: orphanDependents and propagationPolicy cannot be both set"
            )
        propagation = "Orphan" if orphan else "Background"
    if propagation is not None and propagation not in _PROPAGATION:
        known = ", ".join(f'"{item}"' for item in _PROPAGATION)
        raise BadRequest(
            f'DeleteOptions: propagationPolicy: Unsupported value: "{propagation}": supported '
            f"values: {known}"
        )
    if grace is not None and grace < 0:
        raise BadRequest(
            f"DeleteOptions: gracePeriodSeconds: Invalid value: {grace}: must be 0 or more"
        )
    return {
        "grace_seconds": grace,
        "propagation": propagation,
        "preconditions": clone(options.get("preconditions") or {}),
        "dry": requests.dry_run(query, options),
    }
