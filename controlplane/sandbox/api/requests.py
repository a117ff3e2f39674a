"""Read a request: what it addresses, with which options, and its body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from starlette.requests import Request

from controlplane.sandbox.errors import ApiError, BadRequest, NotFound, UnsupportedMediaType
from controlplane.sandbox.kinds import BY_RESOURCE, KindInfo

MAX_BODY = 3 << 20
_TRUE = ("true", "1", "t", "True", "TRUE")


class NoSuchPath(NotFound):
    """404 of a path that no handler serves."""

    def __init__(self) -> None:
        super().__init__("the server could not find the requested resource")


class TooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


@dataclass(frozen=True, slots=True)
class Target:
    """What a path addresses; `name` None is the collection."""

    kind: KindInfo
    namespace: str | None
    name: str | None
    subresource: str | None


def target_of(path: str) -> Target:
    """Parse `/api/v1/...` or `/apis/<group>/<version>/...`; NoSuchPath for anything else."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        raise NoSuchPath
    if len(rest) < 2:
        raise NoSuchPath
    version, rest = rest[0], rest[1:]
    namespace: str | None = None
    # namespaces/<ns>/<plural>...; namespaces/<name>[/status|/finalize] is the kind itself
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = BY_RESOURCE.get((group, version, rest[0]))
    if kind is None or len(rest) > 3 or "" in (*rest, namespace):
        raise NoSuchPath
    if (namespace is not None) != kind.namespaced and (namespace is not None or len(rest) > 1):
        raise NoSuchPath
    name = rest[1] if len(rest) > 1 else None
    return Target(kind, namespace, name, rest[2] if len(rest) > 2 else None)


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean query parameter."""
    return query.get(name, "") in _TRUE


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole, non-negative query parameter, or None; BadRequest."""
    text = query.get(name, "")
    if text == "":
        return None
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise BadRequest(f"{name}: Invalid value: {text!r}: must be a whole number, 0 or more")
    return value


def version(query: Mapping[str, str]) -> int | None:
    """The resourceVersion parameter, or None; BadRequest."""
    text = query.get("resourceVersion", "")
    if text == "":
        return None
    if not text.isdigit():
        raise BadRequest(f"resourceVersion: Invalid value: {text!r}: must be a version we sent")
    return int(text)


def dry_run(query: Mapping[str, str], body: Mapping[str, Any] | None = None) -> bool:
    """Whether the write is only tried; BadRequest for a value other than All."""
    values = [query["dryRun"]] if query.get("dryRun") else list((body or {}).get("dryRun") or ())
    if any(value != "All" for value in values):
        raise BadRequest(f'dryRun: Unsupported value: {values}: supported values: "All"')
    return bool(values)


def manager(request: Request) -> str:
    """The field manager: the parameter, else the first word of the User-Agent."""
    given = request.query_params.get("fieldManager", "")
    if len(given) > 128:
        raise BadRequest("fieldManager: Too long: may not be more than 128 bytes")
    return given or request.headers.get("user-agent", "unknown").partition("/")[0][:128]


async def raw_body(request: Request) -> bytes:
    """The body, at most MAX_BODY bytes."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY:
            raise TooLarge(f"limit is {MAX_BODY} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def body(request: Request, *, optional: bool = False) -> Any:
    """The body as JSON data (JSON or YAML); None when it is empty and may be."""
    raw = await raw_body(request)
    if not raw and optional:
        return None
    media = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if "protobuf" in media or "cbor" in media:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            f"application/json, application/yaml (got {media}); kubectl sends JSON with apply -f "
            "and create -f"
        )
    return parse(raw, yaml_too="yaml" in media)


def parse(raw: bytes, *, yaml_too: bool) -> Any:
    """Decode JSON, or YAML where allowed; BadRequest says where it is wrong."""
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply") from error
    except ValueError as error:
        if not yaml_too:
            raise BadRequest(f"the body is not JSON: {error}") from error
    try:
        return yaml.load(raw, _PlainLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise BadRequest(f"the body is neither JSON nor YAML: {error}") from error


class _PlainLoader(yaml.SafeLoader):
    """YAML as JSON data: no timestamps, and no aliases, which can expand without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
