"""The client against a small HTTP server that does what it is told: errors, streams, stops."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.client import connect
from controlplane.cluster.interface import (
    Cluster,
    ClusterAddress,
    ClusterError,
    Conflict,
    EventType,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    PatchType,
    Unreachable,
)
from controlplane.cluster.limiter import TokenBucket
from controlplane.cluster.resources import JOBS, NODES, PODS


class Server:
    """Answers every request with `status` and `body`, or streams `lines`, then holds or closes."""

    def __init__(self) -> None:
        self.status = 200
        self.body: Any = {}
        self.headers: dict[str, str] = {}
        self.lines: list[bytes] | None = None
        self.hold = threading.Event()
        self.hold.set()
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        handler = type("Handler", (_Handler,), {"owner": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.hold.set()
        self.http.shutdown()
        self.http.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: Server
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        server = self.owner
        length = int(self.headers.get("Content-Length") or 0)
        sent = json.loads(self.rfile.read(length)) if length else None
        server.requests.append(
            (self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, sent)
        )
        self.send_response(server.status)
        for name, value in server.headers.items():
            self.send_header(name, value)
        if server.lines is None:
            raw = (
                server.body if isinstance(server.body, bytes) else json.dumps(server.body).encode()
            )
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in server.lines:
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()
        server.hold.wait(10)
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_PATCH = do_POST = answer

    def log_message(self, *args: Any) -> None:
        return None


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def kubeconfig(path: Path, port: int) -> str:
    path.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: east
clusters: [{{name: east, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{token: secret-token}}}}]
contexts: [{{name: east, context: {{cluster: east, user: me}}}}]
"""
    )
    return str(path)


@pytest.fixture
def cluster(server: Server, tmp_path: Path) -> Iterator[Cluster]:
    client = connect(ClusterAddress("east", kubeconfig(tmp_path / "config", server.port)))
    yield client
    client.close()


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


@pytest.mark.parametrize(
    ("code", "want"),
    [
        (400, Invalid),
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Invalid),
        (429, Unreachable),
        (500, Unreachable),
        (503, Unreachable),
    ],
)
def test_refusals(server: Server, cluster: Cluster, code: int, want: type[ClusterError]) -> None:
    server.status, server.body = code, status(code, "because of the moon.")
    with pytest.raises(want) as caught:
        cluster.get(JOBS, "ml", "llama")
    error = caught.value
    assert (error.cluster, error.verb, error.object) == ("east", "get", "jobs.batch ml/llama")
    assert "because of the moon" in error.detail
    assert error.remedy
    assert error.remedy in str(error)


def test_retry_after_is_kept(server: Server, cluster: Cluster) -> None:
    server.status, server.body = 429, status(429, "slow down")
    server.headers["Retry-After"] = "7"
    with pytest.raises(Unreachable) as caught:
        cluster.list(PODS)
    assert caught.value.retry_after_s == 7


def test_an_address_where_nobody_listens(tmp_path: Path) -> None:
    server = Server()
    server.close()
    client = connect(ClusterAddress("east", kubeconfig(tmp_path / "config", server.port)))
    with pytest.raises(Unreachable, match="on cluster east"):
        client.list(NODES)


def test_an_answer_that_is_not_kubernetes(server: Server, cluster: Cluster) -> None:
    server.body = b"<html>welcome</html>"
    with pytest.raises(Unreachable, match="not JSON"):
        cluster.list(NODES)


@pytest.mark.parametrize(
    ("content", "context"),
    [(None, ""), ("{{{", ""), ("apiVersion: v1\nkind: Config\n", ""), ("good", "west")],
)
def test_a_kubeconfig_that_cannot_be_used(
    tmp_path: Path, content: str | None, context: str
) -> None:
    path = tmp_path / "config"
    if content == "good":
        kubeconfig(path, 1)
    elif content is not None:
        path.write_text(content)
    with pytest.raises(Invalid, match="kubeconfig path and context"):
        connect(ClusterAddress("east", str(path), context))


def test_list_asks_for_pages_and_names_the_kind_of_items(server: Server, cluster: Cluster) -> None:
    server.body = {
        "metadata": {"resourceVersion": "42", "continue": "next"},
        "items": [{"metadata": {"name": "main-00"}}],
    }
    page = cluster.list(NODES, limit=2, continue_token="abc", label_selector="a=b")
    assert (page.resource_version, page.continue_token) == ("42", "next")
    assert page.items[0]["kind"] == "Node"
    method, path, headers, _ = server.requests[0]
    assert (method, path) == ("GET", "/api/v1/nodes?limit=2&labelSelector=a%3Db&continue=abc")
    assert headers["authorization"] == "Bearer secret-token"


def test_patch_says_who_we_are(server: Server, cluster: Cluster) -> None:
    body = {"spec": {"parallelism": 2}}
    cluster.patch(JOBS, "ml", "llama", body)
    cluster.patch(JOBS, "ml", "llama", [], patch_type=PatchType.JSON)
    cluster.apply(JOBS, {"metadata": {"namespace": "ml", "name": "llama"}}, force=True)
    paths = [
        (method, path, headers["content-type"]) for method, path, headers, _ in server.requests
    ]
    base = "/apis/batch/v1/namespaces/ml/jobs/llama?fieldManager=concertina"
    assert paths == [
        ("PATCH", base, "application/merge-patch+json"),
        ("PATCH", base, "application/json-patch+json"),
        ("PATCH", base + "&force=true", "application/apply-patch+yaml"),
    ]
    assert server.requests[0][3] == body


def line(type: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": type, "object": obj}).encode() + b"\n"


def test_watch_reads_events_however_they_are_cut(server: Server, cluster: Cluster) -> None:
    pod = {"metadata": {"name": "p", "resourceVersion": "7"}}
    raw = line("ADDED", pod) + line("MODIFIED", pod)
    server.lines = [raw[:10], raw[10:70], raw[70:], line("BOOKMARK", pod)]
    events = list(cluster.watch(PODS, resource_version="5", timeout_s=9))
    assert [e.type for e in events] == [EventType.ADDED, EventType.MODIFIED, EventType.BOOKMARK]
    assert {e.resource_version for e in events} == {"7"}
    assert server.requests[0][1] == (
        "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=9"
    )


@pytest.mark.parametrize(("code", "want"), [(410, Gone), (500, Unreachable)])
def test_an_error_event_is_raised(
    server: Server, cluster: Cluster, code: int, want: type[ClusterError]
) -> None:
    server.lines = [line("ERROR", status(code, "too old resource version"))]
    with pytest.raises(want, match="too old"):
        list(cluster.watch(PODS, resource_version="5"))


def test_stop_ends_a_silent_watch_at_once(server: Server, cluster: Cluster) -> None:
    server.lines = [line("ADDED", {"metadata": {"name": "p", "resourceVersion": "7"}})]
    server.hold.clear()
    stream = cluster.watch(PODS, resource_version="5")
    seen: list[str] = []
    first = threading.Event()

    def read() -> None:
        for event in stream:
            seen.append(event.resource_version)
            first.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert first.wait(5)
    began = time.monotonic()
    stream.stop()
    reader.join(2)
    assert not reader.is_alive()
    assert time.monotonic() - began < 1
    assert seen == ["7"]


def test_a_token_bucket_allows_a_burst_then_its_rate() -> None:
    now = [100.0]
    bucket = TokenBucket(10, 3, clock=lambda: now[0])
    assert [round(bucket.reserve(), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    now[0] += 10
    assert [round(bucket.reserve(), 3) for _ in range(4)] == [0, 0, 0, 0.1]
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(0, 1)
