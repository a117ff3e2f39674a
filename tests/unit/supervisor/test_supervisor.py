"""Order, restarts and clean ends, over stand-in processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.supervisor import supervisor as module
from controlplane.supervisor.config import ROOT
from controlplane.supervisor.supervisor import StartFailed
from tests.unit.supervisor.fake_run import make_supervisor, spec


def wait_for(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def events(folder: Path) -> list[str]:
    path = folder / "events"
    return path.read_text().splitlines() if path.exists() else []


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def run_until_up(supervisor: module.Supervisor) -> list[str]:
    """Bring up, stop as soon as all are healthy; names in the order in which they became so."""
    order: list[str] = []
    async with asyncio.timeout(30):
        await supervisor.run(order.append, supervisor.request_stop)
    return order


def test_starts_in_order_of_dependency_and_stops_in_reverse(tmp_path: Path) -> None:
    specs = [
        spec(tmp_path, "site", after=("store", "prepare")),
        spec(tmp_path, "prepare", "once"),
        spec(tmp_path, "store"),
        spec(tmp_path, "demo", after=("site",)),
    ]
    order = asyncio.run(run_until_up(make_supervisor(tmp_path, specs, [])))
    assert set(order[:2]) == {"prepare", "store"}
    assert order[2:] == ["site", "demo"]
    want = ["demo stopped", "site stopped", "store stopped"]
    assert [line for line in events(tmp_path) if line.endswith("stopped")] == want
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_output_goes_to_a_log_of_its_own(tmp_path: Path) -> None:
    asyncio.run(run_until_up(make_supervisor(tmp_path, [spec(tmp_path, "store")], [])))
    assert "store says hello" in (tmp_path / "log" / "store.log").read_text()


def test_a_crashed_process_is_started_again_and_said_so(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = make_supervisor(tmp_path, [spec(tmp_path, "store")], said)

    async def crash_once() -> None:
        run = asyncio.create_task(supervisor.run(lambda name: None, lambda: None))
        store = supervisor.children["store"]
        async with asyncio.timeout(20):
            await store.healthy.wait()
            first = store.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            while not (store.healthy.is_set() and store.pid not in (None, first)):
                await asyncio.sleep(0.02)
        supervisor.request_stop()
        await run

    asyncio.run(crash_once())
    assert events(tmp_path).count("store started") == 2
    assert [
        line for line in said if "store was ended by SIGKILL; starting it again in 0.5 s" in line
    ]
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


CANNOT_START = [
    (
        "broken",
        "store ended with exit status 1, 3 times: it can't be started",
        "no such thing as store",
    ),
    ("sick", "store was not healthy within 1 s, 3 times: it can't be started", "store says hello"),
    (
        "broken once",
        "store ended with exit status 1: it can't be started",
        "no such thing as store",
    ),
]


@pytest.mark.parametrize(("mode", "sentence", "last_line"), CANNOT_START)
def test_one_that_never_gets_healthy_ends_the_run_with_its_last_lines(
    tmp_path: Path, mode: str, sentence: str, last_line: str
) -> None:
    specs = [
        spec(tmp_path, "store", mode),
        spec(tmp_path, "other"),
        spec(tmp_path, "site", after=("store",)),
    ]
    with pytest.raises(StartFailed) as caught:
        asyncio.run(run_until_up(make_supervisor(tmp_path, specs, [])))
    assert sentence in str(caught.value)
    assert last_line in str(caught.value)
    assert str(tmp_path / "log" / "store.log") in str(caught.value)
    assert "site started" not in events(tmp_path)
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_the_rest_stays_up_without_an_optional_one(tmp_path: Path) -> None:
    said: list[str] = []
    specs = [spec(tmp_path, "store"), spec(tmp_path, "demo", "broken optional", after=("store",))]
    order = asyncio.run(run_until_up(make_supervisor(tmp_path, specs, said)))
    assert order == ["store"]
    assert [line for line in said if line.endswith("Going on without it.")]
    assert events(tmp_path)[-1] == "store stopped"


def test_one_deaf_to_sigterm_is_ended_by_force_within_five_seconds(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = make_supervisor(tmp_path, [spec(tmp_path, "store", "stubborn family")], said)
    stopped_at: list[float] = []

    def stop() -> None:
        stopped_at.append(time.monotonic())
        supervisor.request_stop()

    asyncio.run(supervisor.run(lambda name: None, stop))
    assert time.monotonic() - stopped_at[0] < 5.0
    assert [line for line in said if "ended by force: store" in line]
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


@contextmanager
def program(folder: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """The whole thing as `make up` runs it, up; whatever a failed test leaves is ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.supervisor.fake_run", str(folder), kind],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        wait_for(lambda: process.stdout is not None and process.stdout.readline().strip() == "UP")
        yield process
    finally:
        process.kill()
        process.wait()
        for pid in pids(folder):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


ENDS = [
    # kind of the second process, signals in turn, to whom, seconds it may take
    ("", [signal.SIGINT], "outer", 3.0),
    ("", [signal.SIGTERM], "outer", 3.0),
    ("family", [signal.SIGINT], "outer", 3.0),
    ("stubborn family", [signal.SIGINT], "outer", 5.0),
    ("stubborn family", [signal.SIGINT, signal.SIGINT], "outer", 2.0),
    ("family", [signal.SIGKILL], "outer", 5.0),
    ("family", [signal.SIGKILL], "inner", 5.0),
    ("stubborn family", [signal.SIGKILL], "inner", 5.0),
]


@pytest.mark.parametrize(("kind", "signals", "to", "seconds"), ENDS)
def test_nothing_is_left_however_it_ends(
    tmp_path: Path, kind: str, signals: list[signal.Signals], to: str, seconds: float
) -> None:
    with program(tmp_path, kind) as process:
        inner = int((tmp_path / "inner").read_text())
        target = process.pid if to == "outer" else inner
        begun = time.monotonic()
        for number, signum in enumerate(signals):
            if number:  # a second Ctrl-C is one only when the first was taken
                wait_for(lambda: process.stdout and "Stopping" in process.stdout.readline())
            os.kill(target, signum)
        everything = [process.pid, inner, *pids(tmp_path)]
        wait_for(lambda: not [pid for pid in everything if alive(pid)], seconds + 3)
        assert time.monotonic() - begun < seconds


def test_what_a_crashed_process_leaves_is_ended(tmp_path: Path) -> None:
    with program(tmp_path, "family") as process:
        site, grandchild = pids(tmp_path)[1:]
        os.kill(site, signal.SIGKILL)
        wait_for(lambda: events(tmp_path).count("site started") == 2)
        wait_for(lambda: not alive(grandchild))
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 0
    assert not [pid for pid in pids(tmp_path) if alive(pid)]
