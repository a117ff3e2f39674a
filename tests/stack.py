"""The whole chain as real processes, on free ports, with its state in a temporary folder.

    with Stack(tmp_path) as stack:          # valkey, sandbox, worker, beat, watcher
        stack.create("batch/v1", "ml", "jobs", make_job_object(...))
        wait_until(lambda: stack.rows("select count(*) as n from decisions_plan")[0]["n"], "a plan")

`Stack(tmp_path, web=True, demo=True)` adds the site and the demo's seed and script. Everything is
ended by process id when the block ends, or with the test process should that be killed.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from controlplane.supervisor.posix import descendants, die_with_parent, free_port, kill_quietly
from tests.services.valkey import ValkeyServer

ROOT = Path(__file__).resolve().parents[1]
START_S = 30.0
STOP_S = 5.0

#: run in a process of its own with the stack's environment: the record that the loop needs
SEED = """
import json, sys, django
django.setup()
from django.core.management import call_command
call_command("migrate", interactive=False, verbosity=0)
from apps.clusters.models import Cluster
from apps.elasticity.models import ElasticityPolicy
wanted = json.load(sys.stdin)
for fields in wanted["policies"]:
    ElasticityPolicy.objects.create(**fields)
for fields in wanted["clusters"]:
    Cluster.objects.create(**fields)
"""


def wait_until(
    condition: Callable[[], Any], what: str, *, timeout_s: float = 15.0, every_s: float = 0.02
) -> Any:
    """The first truthy value of `condition`; fails, naming `what`, when the time has passed."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s for {what}; last value: {value!r}")
        time.sleep(every_s)  # poll interval of a condition with a deadline


class Stack:
    """See the module. `url` is the site's; `api`, `create`, `get` … go to the sandbox."""

    def __init__(
        self,
        folder: Path,
        *,
        web: bool = False,
        beat: bool = True,
        demo: bool = False,
        nodes: str = "demo",
        policies: tuple[dict[str, Any], ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.web, self.beat, self.demo = web, beat, demo
        self.nodes = nodes
        self.policies = policies
        self.kubeconfig = folder / "kubeconfig"
        self.sandbox_port, self.web_port, self.authority_port = (free_port() for _ in range(3))
        self.url = f"http://127.0.0.1:{self.web_port}"
        self.valkey = ValkeyServer()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._api: httpx.Client | None = None
        self._extra = env or {}
        self._commands = self._all_commands()

    @property
    def api(self) -> httpx.Client:
        """A client of the sandbox's API, with its token and authority."""
        if self._api is None:
            state = self.folder / "sandbox"
            self._api = httpx.Client(
                base_url=f"https://127.0.0.1:{self.sandbox_port}",
                verify=ssl.create_default_context(cafile=str(state / "ca.crt")),
                headers={"Authorization": f"Bearer {(state / 'token').read_text().strip()}"},
                timeout=30,
            )
        return self._api

    @property
    def database(self) -> Path:
        return self.folder / "db.sqlite3"

    @property
    def env(self) -> dict[str, str]:
        """The environment of every process."""
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "controlplane.settings.development",
            "DATABASE_URL": f"sqlite:///{self.database}",
            "REDIS_URL": self.valkey.url,
            "CONCERTINA_STATE_DIR": str(self.folder),
            "CONCERTINA_SECRET_KEY": "for-this-test-only-" + "x" * 40,
            "CONCERTINA_PUBLIC_URL": self.url,
            "CONCERTINA_PORT": str(self.web_port),
            "CONCERTINA_SANDBOX_PORT": str(self.sandbox_port),
            "CONCERTINA_AUTHORITY_PORT": str(self.authority_port),
            "CONCERTINA_DEMO": "1" if self.demo else "0",
            "CONCERTINA_DEMO_PASSWORD": "breathe-in-and-out",
            **self._extra,
        }

    def _all_commands(self) -> dict[str, list[str]]:
        python = [sys.executable, "-m"]
        celery = [*python, "celery", "-A", "workers.celery"]
        config = ["--kubeconfig", str(self.kubeconfig)]
        return {
            "sandbox": [
                *python, "controlplane.sandbox", "--data", str(self.folder / "sandbox"),
                "--port", str(self.sandbox_port), *config, "--nodes", self.nodes,
                "--ready-file", str(self.folder / "health" / "sandbox"),
            ],
            "web": [
                *python, "uvicorn", "controlplane.asgi:application", "--host", "127.0.0.1",
                "--port", str(self.web_port), "--timeout-graceful-shutdown", "2",
                "--no-access-log",
            ],
            "worker": [
                *celery, "worker", "-P", "prefork", "-c", "2", "--without-mingle",
                "--without-gossip", "--loglevel", "INFO",
            ],
            "beat": [
                *celery, "beat", "-S", "redbeat.RedBeatScheduler", "--loglevel", "INFO",
                "--pidfile=",
            ],
            "watcher": [*python, "workers.watcher"],
            "demo": [*python, "controlplane.sandbox.demo", *config],
        }  # fmt: skip

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> Stack:
        try:
            self.valkey.start()
            early = ["sandbox", "worker"]
            for name in early:  # neither opens the database while it starts
                self.launch(name, wait=False)
            self.prepare()
            self.wait_ready("sandbox")
            late = ["watcher", *(["beat"] if self.beat else []), *(["web"] if self.web else [])]
            for name in late:
                self.launch(name, wait=False)
            for name in (*early, *late):
                self.wait_ready(name)
            if self.demo:
                self.launch("demo")
        except BaseException:
            self.stop()
            raise
        return self

    def prepare(self) -> None:
        """Migrate, and seed: the demo's record, or the given policies and the one cluster."""
        if self.demo:
            self.run("-m", "django", "migrate", "--verbosity", "0")
            self.run("-m", "django", "collectstatic", "--noinput", "--verbosity", "0")
            self.run("-m", "django", "seed_demo")
            return
        cluster = {"name": "sandbox", "kubeconfig_path": str(self.kubeconfig), "sandbox": True}
        wanted = {"policies": self.policies, "clusters": [cluster]}
        self.run("-c", SEED, stdin=json.dumps(wanted))

    def run(self, *arguments: str, stdin: str = "") -> str:
        """A short Python process with the stack's environment; its output. Raises on failure."""
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.env, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(
                f"{arguments[:3]} ended with {done.returncode}:\n{done.stderr[-4000:]}"
            )
        return done.stdout

    def launch(self, name: str, *, wait: bool = True) -> None:
        """Start one process (again)."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._commands[name],
                env=self.env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=die_with_parent(signal.SIGTERM),
            )  # fmt: skip
        if wait:
            self.wait_ready(name)

    def wait_ready(self, name: str) -> None:
        """Until the process shows that it works. Raises with its log if it doesn't in time."""
        process = self.processes[name]
        deadline = time.monotonic() + START_S
        while not self._is_ready(name):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{name} is not ready (exit {process.poll()}):\n{self.log(name)}"
                )
            time.sleep(0.02)  # poll interval of a condition with a deadline

    def _is_ready(self, name: str) -> bool:
        if name in ("sandbox", "worker", "beat", "watcher"):
            return (self.folder / "health" / name).exists()
        if name == "web":
            try:
                return httpx.get(f"{self.url}/readyz", timeout=1).is_success
            except httpx.HTTPError:
                return False
        return self.processes[name].poll() is None

    def kill(self, name: str) -> None:
        """SIGKILL the process and everything under it, as a machine that dies would."""
        process = self.processes.pop(name)
        below = descendants(process.pid)
        process.kill()
        for pid in below:
            kill_quietly(pid, signal.SIGKILL)
        process.wait()
        (self.folder / "health" / name).unlink(missing_ok=True)

    def end(self, name: str) -> float:
        """SIGTERM, then SIGKILL after a while; seconds that it took."""
        process = self.processes.pop(name)
        began = time.monotonic()
        below = descendants(process.pid)
        kill_quietly(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        took = time.monotonic() - began
        for pid in below:
            kill_quietly(pid, signal.SIGKILL)
        (self.folder / "health" / name).unlink(missing_ok=True)
        return took

    def stop(self) -> None:
        for process in self.processes.values():  # all at once, then one by one
            kill_quietly(process.pid, signal.SIGTERM)
        for name in reversed(list(self.processes)):
            self.end(name)
        if self._api is not None:
            self._api.close()
        self.valkey.stop()

    def __enter__(self) -> Stack:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if kind is not None:
            for name in self.processes:
                print(f"--- {name} ---\n{self.log(name, 3000)}")
        self.stop()

    def log(self, name: str, last: int = 6000) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-last:] if path.exists() else ""

    # -- the cluster and the record ------------------------------------------------------------

    def create(self, api: str, namespace: str | None, plural: str, manifest: Any) -> Any:
        """POST an object; what the builders set for reading (uid, versions, status) is left out."""
        body = {key: value for key, value in manifest.items() if key != "status"}
        unset = ("uid", "resourceVersion", "creationTimestamp", "generation")
        meta = {k: v for k, v in manifest["metadata"].items() if k not in unset}
        body["metadata"] = meta
        answer = self.api.post(self.path(api, namespace, plural), json=body)
        if not answer.is_success:
            raise RuntimeError(f"creating {plural} {meta['name']}: {answer.text}")
        return answer.json()

    def get(self, api: str, namespace: str | None, plural: str, name: str = "") -> Any:
        answer = self.api.get(self.path(api, namespace, plural, name))
        answer.raise_for_status()
        return answer.json()

    def items(self, api: str, namespace: str | None, plural: str) -> list[Any]:
        found: list[Any] = self.get(api, namespace, plural)["items"]
        return found

    def delete(self, api: str, namespace: str | None, plural: str, name: str) -> None:
        """As kubectl does: what the object owns goes too (a Job's own default is to orphan it)."""
        path = self.path(api, namespace, plural, name)
        answer = self.api.delete(path, params={"propagationPolicy": "Background"})
        answer.raise_for_status()

    def merge(self, api: str, namespace: str | None, plural: str, name: str, patch: Any) -> Any:
        answer = self.api.patch(
            self.path(api, namespace, plural, name),
            content=json.dumps(patch),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        answer.raise_for_status()
        return answer.json()

    @staticmethod
    def path(api: str, namespace: str | None, plural: str, name: str = "") -> str:
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{inside}/{plural}" + (f"/{name}" if name else "")

    def rows(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of the stack's own database, read beside the processes that write it."""
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, parameters)]
        finally:
            connection.close()
