"""The HTTP application in the process: what only the sandbox has, and bad input."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.sandbox.api.app import create_app
from controlplane.sandbox.clock import ManualClock
from controlplane.sandbox.errors import Conflict
from controlplane.sandbox.kinds import POD
from controlplane.sandbox.objects import clone
from controlplane.sandbox.store import Store

TOKEN = "a-token"
SIGNAL = "/sandbox/v1/namespaces/default/pods/p/signal"


@pytest.fixture
def store() -> Store:
    return Store(clock=ManualClock())


@pytest.fixture
async def http(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(store, TOKEN))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as made:
        yield made


def make_pod(store: Store, name: str = "p", containers: tuple[str, ...] = ("a",)) -> Any:
    built = [{"name": item, "image": "i:1"} for item in containers]
    metadata = {"name": name, "namespace": "default"}
    return store.create(POD, {"metadata": metadata, "spec": {"containers": built}})


def set_phase(store: Store, phase: str) -> None:
    pod = clone(store.get(POD, "default", "p"))
    pod["status"]["phase"] = phase
    store.update(POD, pod, subresource="status")


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}]
)
@pytest.mark.parametrize(
    "path", ["/api/v1/pods", "/apis", SIGNAL, "/openapi/v3", "/no/such/path", "/sandbox/v1/expire"]
)
async def test_without_the_token_nothing_is_told(
    store: Store, header: dict[str, str], path: str
) -> None:
    transport = httpx.ASGITransport(create_app(store, TOKEN))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as anonymous:
        for method in ("GET", "POST"):
            answer = await anonymous.request(method, path, headers=header)
            assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")


# -- signals -------------------------------------------------------------------------------------


async def test_signal_reaches_the_emulator(store: Store, http: httpx.AsyncClient) -> None:
    sent: list[tuple[str, str]] = []
    make_pod(store)
    store.hooks.send_signal = lambda pod, signal: sent.append((pod["metadata"]["name"], signal))
    answer = await http.post(SIGNAL, json={"signal": "KILL"})
    assert (answer.status_code, answer.json()["status"], sent) == (200, "Success", [("p", "KILL")])


async def test_signal_that_cannot_be_delivered(store: Store, http: httpx.AsyncClient) -> None:
    assert (await http.post(SIGNAL, json={"signal": "KILL"})).status_code == 404
    make_pod(store)
    answer = await http.post(SIGNAL, json={"signal": "KILL"})
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")

    def refuse(pod: Any, signal: str) -> None:
        raise Conflict("the pod has ended")

    store.hooks.send_signal = refuse
    assert (await http.post(SIGNAL, json={"signal": "KILL"})).status_code == 409


@pytest.mark.parametrize("body", [{"signal": "NOPE"}, {}, [], {"signal": 9}, {"signal": ["KILL"]}])
async def test_unknown_signal_names_the_known(
    store: Store, http: httpx.AsyncClient, body: Any
) -> None:
    make_pod(store)
    sent: list[str] = []
    store.hooks.send_signal = lambda pod, signal: sent.append(signal)
    answer = await http.post(SIGNAL, json=body)
    assert answer.status_code == 400
    assert '"KILL"' in answer.json()["message"]
    assert sent == []


async def test_too_old_watch_as_http_status(store: Store, http: httpx.AsyncClient) -> None:
    old = store.resource_version
    make_pod(store)
    query = {"watch": "1", "resourceVersion": str(old)}
    assert (await http.post("/sandbox/v1/expire", json={"as": "status"})).status_code == 200
    answer = await http.get("/api/v1/pods", params=query)
    assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")
    answer = await http.get("/api/v1/pods", params=query)  # once; then as the real server does
    assert (answer.status_code, answer.json()["type"]) == (200, "ERROR")
    assert (await http.post("/sandbox/v1/expire", json={"as": "x"})).status_code == 400


# -- logs ----------------------------------------------------------------------------------------

LOG = "/api/v1/namespaces/default/pods/p/log"


@pytest.mark.parametrize(
    ("text", "query", "want"),
    [
        ("one\ntwo\nthree\n", {}, "one\ntwo\nthree\n"),
        ("one\ntwo\nthree\n", {"tailLines": "2"}, "two\nthree\n"),
        ("one\ntwo\nthree", {"tailLines": "1"}, "three"),
        ("one\ntwo\n", {"tailLines": "9"}, "one\ntwo\n"),
        ("one\ntwo\n", {"tailLines": "0"}, ""),
        ("one\ntwo\n", {"limitBytes": "5"}, "one\nt"),
        ("", {"tailLines": "3"}, ""),
        ("x" * 70_000 + "\nlast\n", {"tailLines": "1"}, "last\n"),
        ("one\ntwo\n", {"follow": "true"}, "one\ntwo\n"),
    ],
)
async def test_log(
    store: Store,
    http: httpx.AsyncClient,
    tmp_path: Path,
    text: str,
    query: dict[str, str],
    want: str,
) -> None:
    make_pod(store)
    set_phase(store, "Succeeded")  # so that a follow ends
    path = tmp_path / "log"
    path.write_text(text)
    store.hooks.log_path = lambda pod, container: path
    assert (await http.get(LOG, params=query)).text == want


async def test_log_of_a_pod_that_waits_says_so(store: Store, http: httpx.AsyncClient) -> None:
    make_pod(store)
    pod = clone(store.get(POD, "default", "p"))
    waiting = {"waiting": {"reason": "CreateContainerConfigError"}}
    pod["status"]["containerStatuses"] = [{"name": "a", "state": waiting}]
    store.update(POD, pod, subresource="status")
    answer = await http.get(LOG)
    assert answer.status_code == 400
    assert "is waiting to start: CreateContainerConfigError" in answer.json()["message"]


async def test_log_needs_the_right_container(store: Store, http: httpx.AsyncClient) -> None:
    make_pod(store, containers=("a", "b"))
    answer = await http.get(LOG)
    assert answer.status_code == 400
    assert "choose one of: [a b]" in answer.json()["message"]
    assert (await http.get(LOG, params={"container": "c"})).status_code == 400


# -- bad input -----------------------------------------------------------------------------------

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("content", "media", "code"),
    [
        (b"{" * 100_000, "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"null", "application/json", 400),
        (b"a: &x [1]\nb: *x\n", "application/yaml", 400),
        (b"a: [", "application/yaml", 400),
        (b"k8s\x00", "application/vnd.kubernetes.protobuf", 415),
        (b'{"metadata": 3}', "application/json", 400),
        (b'{"metadata": {"name": "a", "labels": {"a": null}}, "data": {"x": "y"}}',
         "application/json", 201),
        (b" " * (3 << 20) + b"{}", "application/json", 413),
    ],
)  # fmt: skip
async def test_bodies(
    store: Store, http: httpx.AsyncClient, content: bytes, media: str, code: int
) -> None:
    answer = await http.post(MAPS, content=content, headers={"Content-Type": media})
    assert answer.status_code == code, answer.text
    assert len(store.list("ConfigMap")) == (code == 201)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({"resourceVersion": "abc"}, "resourceVersion"),
        ({"limit": "many"}, "limit"),
        ({"watch": "1", "timeoutSeconds": "-1"}, "timeoutSeconds"),
        ({"watch": "1", "sendInitialEvents": "true"}, "resourceVersionMatch"),
        ({"continue": "!!!"}, "continue"),
    ],
)
async def test_bad_query_names_the_parameter(
    http: httpx.AsyncClient, query: dict[str, str], word: str
) -> None:
    answer = await http.get(MAPS, params=query)
    assert answer.status_code == 400
    assert word in answer.json()["message"]


async def test_an_error_of_ours_is_a_status_without_a_traceback(
    store: Store, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(store, "list_stored", fail)
    answer = await http.get(MAPS)
    assert (answer.status_code, answer.json()["reason"]) == (500, "InternalError")
    assert "secret detail" not in answer.text


async def test_paths(http: httpx.AsyncClient) -> None:
    for path, code in {
        "/api/v1/nodes": 200,
        "/api/v1/namespaces": 200,
        "/api/v1/namespaces/default": 200,
        "/api/v1/namespaces/default/status": 200,
        "/api/v1/namespaces/default/nodes": 404,
        "/api/v1/pods/p": 404,
        "/api/v1/namespaces/default/pods/p/exec": 404,
        "/apis/batch/v1/namespaces/default/jobs/j/status/extra": 404,
        "/apis/batch/v1/": 200,
        "/api/v1/namespaces//pods": 404,
    }.items():
        assert (await http.get(path)).status_code == code, path


async def test_openapi_serves_what_discovery_names(http: httpx.AsyncClient) -> None:
    index = (await http.get("/openapi/v3")).json()["paths"]
    assert set(index) >= {"api/v1", "apis/batch/v1", "apis/apps/v1"}
    for entry in index.values():
        document = (await http.get(entry["serverRelativeURL"])).json()
        schemas = document["components"]["schemas"]
        text = str(document)
        for name in schemas:
            assert name
        assert "fieldValidation" in text
    assert (await http.get("/openapi/v3/apis/none/v1")).status_code == 404
    assert (await http.get("/openapi/v2")).json()["swagger"] == "2.0"
