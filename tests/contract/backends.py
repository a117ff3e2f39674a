"""The clusters that the contract suite runs on: the sandbox, and a real control plane."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from kubernetes import client, config

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass
class Cluster:
    """One running cluster and the ways to talk to it.

    `expire()` makes every resourceVersion handed out so far too old to resume from.
    """

    name: str
    kubeconfig: Path
    version: tuple[int, int]
    http: httpx.Client
    api: client.ApiClient
    expire: Callable[[], None]
    core: client.CoreV1Api = field(init=False)
    batch: client.BatchV1Api = field(init=False)
    apps: client.AppsV1Api = field(init=False)
    scheduling: client.SchedulingV1Api = field(init=False)
    coordination: client.CoordinationV1Api = field(init=False)

    def __post_init__(self) -> None:
        self.core = client.CoreV1Api(self.api)
        self.batch = client.BatchV1Api(self.api)
        self.apps = client.AppsV1Api(self.api)
        self.scheduling = client.SchedulingV1Api(self.api)
        self.coordination = client.CoordinationV1Api(self.api)

    @property
    def real(self) -> bool:
        """Whether this is a real kube-apiserver."""
        return self.name == "apiserver"


def connect(name: str, kubeconfig: Path, expire: Callable[[Cluster], None]) -> Cluster:
    """A Cluster from a kubeconfig, with the official client and a plain HTTP one."""
    settings = yaml.safe_load(kubeconfig.read_text())
    server = settings["clusters"][0]["cluster"]
    token = settings["users"][0]["user"]["token"]
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    http = httpx.Client(
        base_url=server["server"],
        headers={"Authorization": f"Bearer {token}", "User-Agent": "contract/1"},
        verify=context,
        timeout=20,
    )
    api = client.ApiClient(configuration)
    found = client.VersionApi(api).get_code()
    version = (int(found.major), int(found.minor.rstrip("+")))
    cluster = Cluster(name, kubeconfig, version, http, api, lambda: None)
    cluster.expire = lambda: expire(cluster)
    return cluster


def wait_until(check: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """The first true result of `check`, asked again until the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        if found := check():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.03)


@contextlib.contextmanager
def sandbox(folder: Path, *options: str) -> Iterator[Cluster]:
    """The sandbox as a process of its own; the tests play the kubelet."""
    kubeconfig, ready, log = folder / "kubeconfig", folder / "ready", folder / "log"
    command = [sys.executable, "-m", "controlplane.sandbox", "--port", "0"]
    command += ["--kubeconfig", str(kubeconfig), "--ready-file", str(ready), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, "the sandbox serves")
        assert process.poll() is None, log.read_text()
        cluster = connect("sandbox", kubeconfig, _expire_sandbox)
        yield cluster
        cluster.http.close()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _expire_sandbox(cluster: Cluster) -> None:
    cluster.http.post("/sandbox/v1/expire", json={}).raise_for_status()


@contextlib.contextmanager
def control_plane(folder: Path) -> Iterator[Cluster]:
    """etcd, kube-apiserver, scheduler and controllers; KUBEBUILDER_ASSETS names the binaries."""
    port, etcd_port = _free_ports(3), _free_ports(2)
    run = folder / "run"
    environment = {
        **os.environ,
        "RUN": str(run),
        "PORT": str(port),
        "ETCDPORT": str(etcd_port),
        "AUTHZ": "RBAC",
    }
    script = ["bash", str(HERE / "control-plane.sh")]
    started = subprocess.run(
        [*script, "start"], env=environment, capture_output=True, text=True, check=False
    )
    try:
        assert started.returncode == 0, started.stdout + started.stderr

        def expire(cluster: Cluster) -> None:
            version = cluster.core.list_namespace(limit=1).metadata.resource_version
            httpx.post(
                f"http://127.0.0.1:{etcd_port}/v3/kv/compaction",
                json={"revision": version, "physical": True},
            ).raise_for_status()

        cluster = connect("apiserver", run / "admin.kubeconfig", expire)
        yield cluster
        cluster.http.close()
    finally:
        subprocess.run([*script, "stop"], env=environment, capture_output=True, check=False)


def _free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that nothing listens on."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            for offset in range(1, count):
                other = stack.enter_context(socket.socket())
                other.bind(("127.0.0.1", port + offset))
            return port
