"""The only file that opens connections to a cluster: the official client, spoken raw.

We use the official client's configuration (kubeconfig, exec plug-ins, in-cluster tokens, TLS) and
its HTTP layer, but read JSON instead of its generated models: a watch of thousands of pods stays
cheap, and fields newer than the client survive.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import urllib3
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config
from kubernetes.client.exceptions import ApiException
from kubernetes.utils.keepalive import tcp_keepalive_socket_options

from controlplane.cluster.interface import (
    FIELD_MANAGER,
    Cluster,
    ClusterAddress,
    ClusterError,
    Conflict,
    EventType,
    Forbidden,
    Gone,
    Invalid,
    Manifest,
    NotFound,
    Page,
    PatchType,
    Resource,
    Unreachable,
    Verb,
    WatchEvent,
    WatchStream,
    describe,
)
from controlplane.cluster.limiter import TokenBucket

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 15.0
#: a watch's server closes it after its own time-out; the socket waits that much longer
WATCH_SLACK_S = 15.0
REQUESTS_PER_S = 50.0
BURST = 100
USER_AGENT = "concertina/0.1"

_BY_STATUS: dict[int, type[ClusterError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def connect(address: ClusterAddress) -> Cluster:
    """A client of the cluster at `address`. Opens nothing yet.

    Raises Invalid when the kubeconfig is missing, malformed or lacks the context.
    """
    configuration = kubernetes_client.Configuration()
    configuration.retries = False  # we decide what is tried again, and when
    configuration.socket_options = tcp_keepalive_socket_options(idle=10, interval=5, count=3)
    configuration.connection_pool_maxsize = 16
    source = address.kubeconfig_path or "the default kubeconfig"
    try:
        if address.in_cluster:
            source = "the pod's service account"
            kubernetes_config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=address.kubeconfig_path or None,
                context=address.context or None,
                client_configuration=configuration,
                persist_config=False,
            )
    except Exception as error:  # the loader raises what its YAML, base64 and files raise
        raise Invalid(
            address.name,
            Verb.CONNECT,
            source,
            f"{type(error).__name__}: {error}",
            remedy="Correct the cluster's kubeconfig path and context.",
        ) from error
    return HttpCluster(address.name, kubernetes_client.ApiClient(configuration))


class HttpCluster:
    """`Cluster` over HTTP. Thread-safe: urllib3's pool is, and nothing else is shared."""

    def __init__(
        self, name: str, api: kubernetes_client.ApiClient, limiter: TokenBucket | None = None
    ) -> None:
        self._name = name
        self._api = api
        self._api.user_agent = USER_AGENT
        self._limiter = limiter or TokenBucket(REQUESTS_PER_S, BURST)

    @property
    def name(self) -> str:
        return self._name

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        limit: int = 500,
        continue_token: str = "",
    ) -> Page:
        query = [("limit", str(limit))]
        if label_selector:
            query.append(("labelSelector", label_selector))
        if continue_token:
            query.append(("continue", continue_token))
        body = self._json(
            Verb.LIST, describe(resource, namespace), "GET", resource.path(namespace), query=query
        )
        meta = body.get("metadata") or {}
        # items of a list carry no kind of their own; everything above relies on it
        items = body.get("items") or []
        for item in items:
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
        return Page(items, str(meta.get("resourceVersion", "")), str(meta.get("continue") or ""))

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_s: int = 240,
    ) -> WatchStream:
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(timeout_s)),
        ]
        if label_selector:
            query.append(("labelSelector", label_selector))
        what = describe(resource)
        response = self._send(
            Verb.WATCH,
            what,
            "GET",
            resource.path(),
            query=query,
            read_timeout_s=timeout_s + WATCH_SLACK_S,
        )
        return HttpWatch(self._name, what, response)

    def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        return self._json(
            Verb.GET, describe(resource, namespace, name), "GET", resource.path(namespace, name)
        )

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        patch_type: PatchType = PatchType.MERGE,
    ) -> Manifest:
        return self._json(
            Verb.PATCH,
            describe(resource, namespace, name),
            "PATCH",
            resource.path(namespace, name),
            query=[("fieldManager", FIELD_MANAGER)],
            content_type=patch_type.value,
            body=body,
        )

    def apply(self, resource: Resource, manifest: Manifest, *, force: bool = False) -> Manifest:
        meta = manifest["metadata"]
        namespace, name = meta.get("namespace"), meta["name"]
        query = [("fieldManager", FIELD_MANAGER)]
        if force:
            query.append(("force", "true"))
        return self._json(
            Verb.APPLY,
            describe(resource, namespace, name),
            "PATCH",
            resource.path(namespace, name),
            query=query,
            content_type="application/apply-patch+yaml",
            body=manifest,
        )

    def signal_pod(self, namespace: str, name: str, signal: str) -> None:
        self._json(
            Verb.SIGNAL,
            f"pods {namespace}/{name}",
            "POST",
            f"/sandbox/v1/namespaces/{namespace}/pods/{name}/signal",
            content_type="application/json",
            body={"signal": signal},
        )

    def close(self) -> None:
        self._api.close()  # type: ignore[no-untyped-call]

    def _json(self, verb: Verb, what: str, method: str, path: str, **options: Any) -> Manifest:
        response = self._send(verb, what, method, path, **options)
        try:
            raw = response.read()
            value = json.loads(raw) if raw else {}
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(self._name, verb, what, _explain(error)) from error
        except ValueError as error:
            raise Unreachable(
                self._name,
                verb,
                what,
                f"the answer is not JSON ({error}).",
                remedy="Check that the address is a Kubernetes API server.",
            ) from error
        finally:
            response.release_conn()
        if not isinstance(value, dict):
            raise Unreachable(self._name, verb, what, "the answer is not a JSON object.")
        return value

    def _send(
        self,
        verb: Verb,
        what: str,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = "",
        body: Any = None,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> urllib3.BaseHTTPResponse:
        """One request; returns the unread response of a 2xx, raises a ClusterError otherwise."""
        self._limiter.wait()
        headers = {"Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        try:
            request = self._api.param_serialize(
                method,
                path,
                query_params=[*query],
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            timeouts = (CONNECT_TIMEOUT_S, read_timeout_s)
            answer = self._api.call_api(*request, _request_timeout=timeouts)
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(self._name, verb, what, _explain(error)) from error
        response: urllib3.BaseHTTPResponse = answer.response
        if 200 <= response.status <= 299:
            return response
        raise self._refused(verb, what, response)

    def _refused(self, verb: Verb, what: str, response: urllib3.BaseHTTPResponse) -> ClusterError:
        """The error that a non-2xx answer stands for, with the server's own message."""
        try:
            raw = response.read()
        except (urllib3.exceptions.HTTPError, OSError):
            raw = b""
        finally:
            response.release_conn()
        status = _status_of(raw)
        message = str(status.get("message") or f"HTTP {response.status}.")
        retry_after = response.headers.get("Retry-After", "")
        return error_for(
            self._name,
            verb,
            what,
            response.status,
            message,
            retry_after_s=float(retry_after) if retry_after.isdigit() else None,
        )


class HttpWatch:
    """A watch as newline-separated JSON events, read as they come."""

    def __init__(self, cluster: str, what: str, response: urllib3.BaseHTTPResponse) -> None:
        self._cluster = cluster
        self._what = what
        self._response = response
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[WatchEvent]:
        try:
            for line in self._lines():
                yield self._event(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            # stop() closes the socket under the reader, which may see it in several ways
            if not self._stopped.is_set():
                raise Unreachable(self._cluster, Verb.WATCH, self._what, _explain(error)) from error
        finally:
            self._response.close()

    def stop(self) -> None:
        """End the iteration now, from any thread: shuts the socket's reading side."""
        self._stopped.set()
        with suppress(Exception):  # already closed, or between two reads: the flag is enough
            self._response.shutdown()

    def _lines(self) -> Iterator[bytes]:
        buffer = b""
        for chunk in self._response.stream(amt=None, decode_content=False):
            if self._stopped.is_set():
                return
            buffer += chunk
            *lines, buffer = buffer.split(b"\n")
            yield from (line for line in lines if line.strip())
        # what is left without a newline was cut off with the connection: the resumed watch
        # sends it again

    def _event(self, line: bytes) -> WatchEvent:
        event = json.loads(line)
        kind, obj = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise error_for(
                self._cluster,
                Verb.WATCH,
                self._what,
                int(obj.get("code") or 500),
                str(obj.get("message") or obj.get("reason") or "the watch ended with an error."),
            )
        version = str((obj.get("metadata") or {}).get("resourceVersion") or "")
        return WatchEvent(EventType(kind), obj, version)


def error_for(
    cluster: str,
    verb: Verb,
    what: str,
    status: int,
    message: str,
    *,
    retry_after_s: float | None = None,
) -> ClusterError:
    """The error type of an HTTP status or of an ERROR event's code; unknown ones can be retried."""
    kind = _BY_STATUS.get(status)
    if kind is not None:
        return kind(cluster, verb, what, message)
    return Unreachable(
        cluster, verb, what, f"HTTP {status}: {message}", retry_after_s=retry_after_s
    )


def _status_of(raw: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        value = json.loads(raw)
        if isinstance(value, dict):
            return value
    return {}


def _explain(error: BaseException) -> str:
    """A sentence for people from what the HTTP library raised."""
    if isinstance(error, ApiException):
        return f"{error.reason}."
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return f"no connection within {CONNECT_TIMEOUT_S:g} s."
    if isinstance(error, urllib3.exceptions.ReadTimeoutError):
        return "no answer in time."
    return f"{type(error).__name__}: {error}."
