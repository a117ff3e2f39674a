"""The sandbox as a process: start, stop, kill -9, and what it says when it can't start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


class Sandbox:
    """One process on a data folder; `http` talks to it once it has started."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.ready = folder / "ready"
        self.ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "controlplane.sandbox", "--port", "0"]
        command += ["--data", str(folder / "data"), "--kubeconfig", str(self.kubeconfig)]
        command += ["--ready-file", str(self.ready), *options]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        deadline = time.monotonic() + 20
        while not self.ready.exists():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "not ready within 20 s"
            time.sleep(0.02)
        settings = yaml.safe_load(self.kubeconfig.read_text())
        self.settings = settings["clusters"][0]["cluster"]
        self.token = settings["users"][0]["user"]["token"]
        authority = self.kubeconfig.parent / "data" / "ca.crt"
        self.http = httpx.Client(
            base_url=self.settings["server"],
            headers={"Authorization": f"Bearer {self.token}"},
            verify=ssl.create_default_context(cafile=str(authority)),
        )

    def maps(self) -> list[str]:
        listed = self.http.get("/api/v1/configmaps").json()["items"]
        return [item["metadata"]["name"] for item in listed]

    def create(self, name: str) -> Any:
        body = {"metadata": {"name": name}}
        answer = self.http.post("/api/v1/namespaces/default/configmaps", json=body)
        answer.raise_for_status()
        return answer.json()

    def end(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Send a signal; seconds until the process was gone."""
        start = time.monotonic()
        self.process.send_signal(how)
        self.process.wait(10)
        self.http.close()
        return time.monotonic() - start


@pytest.fixture
def sandboxes(tmp_path: Path) -> Iterator[Any]:
    started: list[Sandbox] = []

    def start(*options: str) -> Sandbox:
        started.append(Sandbox(tmp_path, "--without", "all", *options))
        return started[-1]

    yield start
    for sandbox in started:
        if sandbox.process.poll() is None:
            sandbox.end(signal.SIGKILL)


def test_term_ends_it_soon_although_clients_watch(sandboxes: Any) -> None:
    sandbox = sandboxes()
    lines: list[str] = []
    opened = threading.Event()

    def follow() -> None:
        query = {"watch": "1", "allowWatchBookmarks": "1"}
        with sandbox.http.stream("GET", "/api/v1/configmaps", params=query) as response:
            opened.set()
            lines.extend(line for line in response.iter_lines() if line)

    watcher = threading.Thread(target=follow)
    watcher.start()
    assert opened.wait(10)
    sandbox.create("c")
    assert sandbox.end() < 2.0
    watcher.join(5)
    assert not watcher.is_alive(), "the watch ended, not broke"
    assert [json.loads(line)["object"]["metadata"]["name"] for line in lines] == ["c"]
    assert sandbox.process.returncode == 0
    assert not sandbox.ready.exists()


def test_kill_loses_nothing_that_was_acknowledged(sandboxes: Any) -> None:
    first = sandboxes()
    versions = [first.create(f"c{index}")["metadata"]["resourceVersion"] for index in range(20)]
    token, server_certificate = first.token, first.settings["certificate-authority-data"]
    first.end(signal.SIGKILL)
    second = sandboxes()
    assert second.maps() == sorted(f"c{index}" for index in range(20))
    kept = second.http.get("/api/v1/configmaps").json()["metadata"]["resourceVersion"]
    assert int(kept) == int(versions[-1])
    assert second.token == token, "clients go on with the kubeconfig that they have"
    assert second.settings["certificate-authority-data"] == server_certificate
    made = second.create("after")
    assert int(made["metadata"]["resourceVersion"]) == int(kept) + 1


def test_secrets_are_private(sandboxes: Any) -> None:
    sandbox = sandboxes()
    data = sandbox.kubeconfig.parent / "data"
    names = ("token", "apiserver.key", "objects.jsonl")
    for path in (sandbox.kubeconfig, *(data / name for name in names)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def run(*options: str) -> tuple[int, str]:
    """Exit status and output of a sandbox that can't start."""
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.sandbox", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_port_taken_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, output = run("--port", str(port), "--without", "all")
    assert code == 2
    assert output.count("\n") == 1
    assert f"can't listen on 127.0.0.1:{port}" in output
    assert "--port" in output


def test_data_folder_in_use_is_one_sentence(sandboxes: Any, tmp_path: Path) -> None:
    sandboxes()
    code, output = run("--port", "0", "--data", str(tmp_path / "data"), "--without", "all")
    assert (code, output.count("\n")) == (2, 1)
    assert "in use by another sandbox" in output


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--without", "no-such-component"), "is none of"),
        (("--nodes", "no-such-cluster", "--without", "all"), "no-such-cluster"),
        (("--data", "/proc/nowhere"), "can't"),
    ],
)
def test_bad_option_is_one_sentence(options: tuple[str, ...], text: str) -> None:
    code, output = run("--port", "0", *options)
    assert (code, output.count("\n")) == (2, 1), output
    assert text in output


MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "i:1", resources: {limits: {nvidia.com/gpu: "1"}}}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: "True"}]}
"""


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_kubectl(sandboxes: Any, tmp_path: Path) -> None:
    """The commands that the README shows."""
    sandbox = sandboxes()
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST)

    def kubectl(*arguments: str) -> str:
        environment = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig), "HOME": str(tmp_path)}
        done = subprocess.run(
            ["kubectl", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stderr)
        assert "error" not in done.stderr.lower(), done.stderr
        return done.stdout

    assert "deployment.apps/web created" in kubectl("apply", "-f", str(manifest))
    assert "deployment.apps/web unchanged" in kubectl("apply", "-f", str(manifest))
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", str(manifest))
    assert "web    0/2" in kubectl("get", "deploy", "-o", "wide")
    assert "scaled" in kubectl("scale", "deployment/web", "--replicas=3")
    assert "web    0/3" in kubectl("get", "deploy")
    assert "cordoned" in kubectl("cordon", "n1")
    assert "Ready,SchedulingDisabled" in kubectl("get", "nodes,pods,jobs", "-o", "wide")
    assert "nvidia.com/gpu:  8" in kubectl("describe", "node", "n1")
    assert "Replicas:" in kubectl("describe", "deployment", "web")
    assert "replicas" in kubectl("explain", "deployment.spec")
    assert "n1" in kubectl("get", "nodes", "-o", "name")
    assert 'deployment.apps "web" deleted' in kubectl("delete", "deployment", "web")
