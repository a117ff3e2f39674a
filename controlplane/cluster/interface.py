"""What the control plane needs of a Kubernetes cluster, and the ways in which it can fail.

Everything above this floor (watcher, tasks, kinds) talks to `Cluster`; only `client.py` opens
connections. Objects are plain Kubernetes JSON (`Manifest`): unknown fields survive a round trip,
and a watch of thousands of pods costs no model objects. Callers never mutate what they are given.

Source of the semantics: Kubernetes API concepts,
https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

Manifest = dict[str, Any]

FIELD_MANAGER = "concertina"


class Verb(StrEnum):
    """The request that failed, in Kubernetes' own words where it has one."""

    CONNECT = "connect"
    LIST = "list"
    WATCH = "watch"
    GET = "get"
    PATCH = "patch"
    APPLY = "apply"
    SIGNAL = "signal"


class PatchType(StrEnum):
    """Content types of the patches that we send."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class EventType(StrEnum):
    """Types of a watch event; ERROR never leaves the adapter: it is raised."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class Resource:
    """One REST resource. `group` is empty for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """As written in `apiVersion`: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """URL path of the collection (all namespaces when none is given) or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "")

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Where a cluster is and with what it is read; comes from a Cluster row.

    Either `in_cluster` (the pod's own service account) or a kubeconfig: `kubeconfig_path` empty
    means the ecosystem's default (`KUBECONFIG`, then `~/.kube/config`); `context` empty means the
    file's current context.
    """

    name: str
    kubeconfig_path: str = ""
    context: str = ""
    in_cluster: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `continue_token` is empty on the last page."""

    items: list[Manifest]
    resource_version: str
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch; a BOOKMARK's object carries only a resourceVersion."""

    type: EventType
    object: Manifest
    resource_version: str


class WatchStream(Protocol):
    """An open watch. Iterating blocks; `stop` may be called from another thread and ends it."""

    def __iter__(self) -> Iterator[WatchEvent]: ...

    def stop(self) -> None: ...


class Cluster(Protocol):
    """A connection to one cluster. Thread-safe: the watcher uses it from several threads.

    Every method raises a `ClusterError`; no exception of the HTTP library passes this floor.
    """

    @property
    def name(self) -> str: ...

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        limit: int = 500,
        continue_token: str = "",
    ) -> Page: ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_s: int = 240,
    ) -> WatchStream:
        """Events after `resource_version`, with bookmarks; ends by itself after `timeout_s`.

        Raises Gone, here or while iterating, when that version is too old to resume from.
        """
        ...

    def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest: ...

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        patch_type: PatchType = PatchType.MERGE,
    ) -> Manifest:
        """Patch one object, as our field manager. Conflict when a precondition fails."""
        ...

    def apply(self, resource: Resource, manifest: Manifest, *, force: bool = False) -> Manifest:
        """Server-side apply with our field manager."""
        ...

    def signal_pod(self, namespace: str, name: str, signal: str) -> None:
        """Fault injection: send a POSIX signal to a pod. Sandboxes only (else NotFound)."""
        ...

    def close(self) -> None: ...


class ClusterError(Exception):
    """A request to a cluster failed: which cluster, verb, object, why, and what to do about it."""

    #: what to do when the server's own message doesn't say
    default_remedy = "See the message."
    #: whether the same request may succeed later without anybody's help
    transient = False

    def __init__(
        self, cluster: str, verb: Verb, object: str, detail: str, *, remedy: str = ""
    ) -> None:
        self.cluster = cluster
        self.verb = verb
        self.object = object
        self.detail = detail
        self.remedy = remedy or self.default_remedy
        super().__init__(f"{verb} {object} on cluster {cluster}: {detail} {self.remedy}".strip())


class Unreachable(ClusterError):
    """No answer, or an answer that says try again (5xx, 429)."""

    default_remedy = "Check the address, the network and the API server; it is tried again."
    transient = True

    def __init__(
        self,
        cluster: str,
        verb: Verb,
        object: str,
        detail: str,
        *,
        remedy: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(cluster, verb, object, detail, remedy=remedy)
        self.retry_after_s = retry_after_s


class Conflict(ClusterError):
    """409: the object changed since it was read, or another field manager owns the field."""

    default_remedy = "Read the object again and decide again."
    transient = True


class Gone(ClusterError):
    """410: the resourceVersion is too old. As an HTTP status or as an ERROR event."""

    default_remedy = "List again and watch from there."
    transient = True


class Forbidden(ClusterError):
    """401 or 403."""

    default_remedy = "Give the service account the rules in deploy/, or renew its credentials."


class NotFound(ClusterError):
    """404: no such object, or no such resource on this server."""

    default_remedy = "It may have been deleted, or the cluster lacks this API."


class Invalid(ClusterError):
    """400 or 422: the server refuses the content. Also a kubeconfig that can't be read."""

    default_remedy = "Correct the content; sending it again will not help."


def describe(resource: Resource, namespace: str | None = None, name: str | None = None) -> str:
    """How errors name an object: `jobs.batch ml/llama`, `pods`."""
    place = "/".join(part for part in (namespace, name) if part)
    return f"{resource} {place}".strip()


def metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object's metadata, never None."""
    meta: Mapping[str, Any] = obj.get("metadata") or {}
    return meta
