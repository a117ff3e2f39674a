"""Pods that are processes on this machine: real ones, so real time, with deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.sandbox import scheduler
from controlplane.sandbox.clock import SystemClock
from controlplane.sandbox.controllers import nodes
from controlplane.sandbox.emulator import Settings, fleet, kubelet
from controlplane.sandbox.emulator.processes import MARK
from controlplane.sandbox.journal import Journal
from controlplane.sandbox.kinds import NODE, POD
from controlplane.sandbox.objects import Object, clone
from controlplane.sandbox.store import Store
from tests.unit.sandbox.builders import make_container, make_pod

LOCAL = {"sandbox.concertina.dev/run": "local"}
_SETTINGS = {"node_boot": 0.0, "device_boot": 0.0, "restart_first": 0.05, "restart_last": 0.2}
PRINTS_AND_WAITS = """
import os, signal, sys, time
print("pid", os.getpid(), os.environ["WHO"], flush=True)
signal.signal(signal.SIGTERM, lambda *_: (print("term", flush=True), sys.exit(7)))
time.sleep(60)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid", os.getpid(), flush=True)
time.sleep(60)
"""
WITH_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("pid", child.pid, flush=True)
time.sleep(60)
"""


def make_local(name: str, code: str, **spec: Any) -> Object:
    env = [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    container = make_container(command=["python", "-u", "-c", code], env=env)
    return make_pod(name, annotations=LOCAL, containers=[container], **spec)


async def until(check: Callable[[], Any], what: str, seconds: float = 10.0) -> Any:
    """The first true result of `check`."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)
    return found


@contextlib.asynccontextmanager
async def machine(folder: Path, store: Store | None = None) -> AsyncIterator[Store]:
    """One node whose pods are processes."""
    clock = SystemClock()
    store = store or Store(clock=clock)
    fleet.populate(store, fleet.parse("box=1x1"))
    settings = Settings(folder=folder, **_SETTINGS)
    parts = [nodes.run(store, clock), scheduler.run(store, clock)]
    tasks = [asyncio.create_task(part) for part in [*parts, kubelet.run(store, clock, settings)]]
    try:
        await until(lambda: "taints" not in store.get(NODE, None, "box-0")["spec"], "a ready node")
        yield store
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def pod(store: Store, name: str = "p") -> Object:
    return store.get(POD, "default", name)


def container(store: Store, name: str = "p") -> Object:
    statuses = pod(store, name)["status"].get("containerStatuses") or [{"state": {}}]
    return dict(statuses[0])


def log_of(store: Store, name: str = "p") -> str:
    assert store.hooks.log_path is not None
    path = store.hooks.log_path(pod(store, name), "main")
    return path.read_text() if path else ""


async def pid_of(store: Store, name: str = "p") -> int:
    text = await until(lambda: log_of(store, name) if "pid" in log_of(store, name) else "", "a pid")
    return int(text.split("pid ")[-1].split()[0])


def lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def test_output_environment_and_end_by_deletion(tmp_path: Path) -> None:
    async with machine(tmp_path) as store:
        store.create(POD, make_local("p", PRINTS_AND_WAITS))
        pid = await pid_of(store)
        assert log_of(store) == f"pid {pid} p\n"
        assert Path(f"/proc/{pid}/cwd").resolve() == Path(__file__).resolve().parents[3]
        assert os.getpgid(pid) == pid
        await until(lambda: pod(store)["status"]["phase"] == "Running", "running")
        watch = store.watch(POD)
        store.delete(POD, "default", "p")
        await until(lambda: store.find(POD, "default", "p") is None, "the pod is gone")
        assert not lives(pid)
        ended = [event.object for event in watch.drain() if event.type == "MODIFIED"][-1]
        assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
        assert ended["status"]["phase"] == "Failed"


async def test_killed_when_the_grace_is_over(tmp_path: Path) -> None:
    async with machine(tmp_path) as store:
        store.create(POD, make_local("p", STUBBORN, terminationGracePeriodSeconds=1))
        pid = await pid_of(store)
        store.delete(POD, "default", "p")
        await until(lambda: store.find(POD, "default", "p") is None, "the pod is gone", 5.0)
        assert not lives(pid)


@pytest.mark.parametrize(
    ("policy", "code", "want_phase", "want_restarts"),
    [
        ("Never", 0, "Succeeded", 0),
        ("Never", 3, "Failed", 0),
        ("OnFailure", 0, "Succeeded", 0),
        ("OnFailure", 3, "Running", 2),
        ("Always", 0, "Running", 2),
    ],
)
async def test_restart_policy(
    tmp_path: Path, policy: str, code: int, want_phase: str, want_restarts: int
) -> None:
    async with machine(tmp_path) as store:
        source = f"raise SystemExit({code})"
        store.create(POD, make_local("p", source, restartPolicy=policy))
        await until(
            lambda: (
                container(store).get("restartCount", 0) >= want_restarts
                and pod(store)["status"]["phase"] == want_phase
            ),
            "the policy's outcome",
        )
        if want_restarts:
            assert container(store)["lastState"]["terminated"]["exitCode"] == code
        else:
            assert container(store)["state"]["terminated"]["exitCode"] == code


async def test_kill_signal(tmp_path: Path) -> None:
    async with machine(tmp_path) as store:
        store.create(POD, make_local("p", WITH_A_CHILD, restartPolicy="Never"))
        child = await pid_of(store)
        assert store.hooks.send_signal is not None
        store.hooks.send_signal(pod(store), "KILL")
        await until(lambda: pod(store)["status"]["phase"] == "Failed", "failed")
        ended = container(store)["state"]["terminated"]
        assert (ended["exitCode"], ended["signal"]) == (137, 9)
        await until(lambda: not lives(child), "its child went with it")


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        ({"command": ["no-such-program"]}, "RunContainerError", "no-such-program"),
        ({}, "CreateContainerError", "no command specified"),
    ],
)
async def test_what_cannot_be_started(
    tmp_path: Path, change: Object, reason: str, message: str
) -> None:
    async with machine(tmp_path) as store:
        store.create(POD, make_pod("p", annotations=LOCAL, containers=[make_container(**change)]))
        waiting = await until(lambda: container(store)["state"].get("waiting"), "a reason")
        assert waiting["reason"] == reason
        assert message in waiting["message"]


async def test_started_again_after_a_restart_of_the_sandbox(tmp_path: Path) -> None:
    store = Store(journal=Journal(tmp_path / "data"))
    async with machine(tmp_path, store):
        store.create(POD, make_local("p", PRINTS_AND_WAITS, restartPolicy="Never"))
        pid = await pid_of(store)
        await until(lambda: pod(store)["status"]["phase"] == "Running", "running")
        before = clone(pod(store))
    assert not lives(pid), "no process outlives the sandbox"
    store.close()
    store = Store(journal=Journal(tmp_path / "data"))
    assert pod(store)["status"] == before["status"], "stopping the sandbox fails no pod"
    async with machine(tmp_path, store):
        await until(lambda: container(store).get("restartCount") == 1, "started again")
        assert await pid_of(store) != pid
        assert pod(store)["status"]["phase"] == "Running"
    store.close()


async def test_sweep_ends_what_a_killed_sandbox_left(tmp_path: Path) -> None:
    env = {**os.environ, MARK: str(tmp_path.resolve())}
    other = {**os.environ, MARK: str(tmp_path.resolve() / "another")}
    code = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours, theirs = subprocess.Popen(code, env=env), subprocess.Popen(code, env=other)
    try:
        await until(lambda: Path(f"/proc/{ours.pid}/environ").read_bytes(), "started")
        async with machine(tmp_path):
            assert ours.wait(timeout=5) == -signal.SIGKILL
            assert theirs.poll() is None
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()


def test_dies_with_the_sandbox(tmp_path: Path) -> None:
    """`kill -9` of the sandbox takes its processes along (PR_SET_PDEATHSIG)."""
    code = (
        "import asyncio, pathlib, sys\n"
        "from tests.unit.sandbox import test_processes as t\n"
        "async def main():\n"
        "    async with t.machine(pathlib.Path(sys.argv[1])) as store:\n"
        "        store.create(t.POD, t.make_local('p', t.STUBBORN))\n"
        "        print(await t.pid_of(store), flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    sandbox = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert sandbox.stdout is not None
    pid = int(sandbox.stdout.readline())
    assert lives(pid)
    sandbox.kill()
    sandbox.wait()
    sandbox.stdout.close()
    deadline = time.monotonic() + 5
    while lives(pid):
        assert time.monotonic() < deadline, "the process outlived its sandbox"
        time.sleep(0.01)
