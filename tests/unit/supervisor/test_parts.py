"""Configuration, refusals, logs, health checks and stamps, each alone."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import socket
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from controlplane.supervisor import preflight, probe
from controlplane.supervisor.config import (
    BadSetting,
    child_environment,
    from_environment,
    kept_secret,
)
from controlplane.supervisor.due import prepare_due, prepared_for, stamps
from controlplane.supervisor.health import FreshFile, HttpOk, RedisPing
from controlplane.supervisor.logs import RotatingLog
from controlplane.supervisor.posix import free_port
from controlplane.supervisor.preflight import CannotStart
from controlplane.supervisor.specs import processes
from controlplane.supervisor.stamps import Stamps, digest
from tests.unit.supervisor.fake_run import make_config

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("CONCERTINA_") or name in ("REDIS_URL", "DATABASE_URL"):
            monkeypatch.delenv(name)


SETTINGS: list[tuple[dict[str, str], list[str], dict[str, Any]]] = [
    ({}, [], {"web_port": 8000, "sandbox_port": 8001, "redis_port": 8002, "demo": True}),
    ({"CONCERTINA_PORT": "9000"}, [], {"web_port": 9000, "address": "http://127.0.0.1:9000"}),
    ({}, ["--no-demo"], {"demo": False}),
    ({"CONCERTINA_DEMO": "0"}, [], {"demo": False}),
    ({"CONCERTINA_STATE_DIR": "/x/one"}, [], {"state_dir": Path("/x/one")}),
    ({"CONCERTINA_STATE_DIR": "/x/one"}, ["--state-dir", "/x/two"], {"state_dir": Path("/x/two")}),
    ({"REDIS_URL": "redis://elsewhere:1/0"}, [], {"redis_url": "redis://elsewhere:1/0"}),
]


@pytest.mark.parametrize(("variables", "flags", "want"), SETTINGS)
def test_settings(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    flags: list[str],
    want: dict[str, Any],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = from_environment(flags)
    assert {name: getattr(config, name) for name in want} == want


@pytest.mark.parametrize("value", ["0", "65536", "-1", "http", "80 80"])
def test_a_bad_port_names_the_variable_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CONCERTINA_PORT", value)
    with pytest.raises(BadSetting) as caught:
        from_environment([])
    assert str(caught.value) == (
        f"CONCERTINA_PORT is {value!r}: give a port from 1 to 65535, such as 8000."
    )


def test_an_external_redis_replaces_valkey(tmp_path: Path) -> None:
    names = [s.name for s in processes(make_config(tmp_path))]
    assert names[-1] == "demo"
    assert "valkey" in names
    without = processes(make_config(tmp_path, redis_url="redis://elsewhere:1/0", demo=False))
    assert not {"valkey", "demo"} & {s.name for s in without}
    assert not [s for s in without if "valkey" in s.after]


def test_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    environment = child_environment(make_config(tmp_path))
    password = environment["CONCERTINA_DEMO_PASSWORD"]
    assert (tmp_path / "demo-password").read_text().strip() == password
    assert (tmp_path / "demo-password").stat().st_mode & 0o777 == 0o600
    assert child_environment(make_config(tmp_path))["CONCERTINA_DEMO_PASSWORD"] == password
    assert len(kept_secret(tmp_path / "other", 50)) >= 50


def test_a_taken_port_is_refused_by_name(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = make_config(
            tmp_path, web_port=port, sandbox_port=free_port(), redis_port=free_port()
        )
        with pytest.raises(CannotStart) as caught:
            preflight.check(config)
    assert str(caught.value) == (
        f"Port {port}, which the web server listens on, is taken by another program: stop that "
        "one, or choose another port with CONCERTINA_PORT=<port> in the environment."
    )


def test_two_alike_ports_are_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path, web_port=free_port(), sandbox_port=1, redis_port=1)
    config = make_config(tmp_path, web_port=config.web_port, sandbox_port=config.web_port)
    with pytest.raises(CannotStart, match="CONCERTINA_SANDBOX_PORT and CONCERTINA_PORT are both"):
        preflight.check_ports(config)


def test_a_folder_owned_by_another_supervisor_is_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    with (tmp_path / "supervisor.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write("4711\n")
        other.flush()
        with pytest.raises(CannotStart, match=r"already runs on .* \(process 4711\)"):
            preflight.check_owner(config)
    preflight.check_owner(config)  # released with its owner
    with preflight.ownership(config):
        assert (tmp_path / "supervisor.lock").read_text() == f"{os.getpid()}\n"


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 99, 5 * 2**20))
    with pytest.raises(CannotStart, match=r"has 5 MiB free and 200 are needed: free some space"):
        preflight.check_state_dir(make_config(tmp_path))


def test_a_state_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(CannotStart, match=r"can't be written to \(Not a directory\)"):
        preflight.check_state_dir(make_config(blocked / "below"))


def test_a_log_is_rotated_and_keeps_its_tail(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "x.log", max_bytes=100, kept=2)
    for number in range(40):
        log.write(f"line {number:04}\n".encode())  # 10 bytes each
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.log", "x.log.1", "x.log.2"]
    assert (tmp_path / "x.log").read_text().splitlines()[-1] == "line 0039"
    assert (tmp_path / "x.log.1").stat().st_size == 100
    assert list(log.tail) == [f"line {n:04}" for n in range(10, 40)]


async def answer_once(reply: bytes, check: Any) -> bool:
    """What the check says about a server that answers with `reply`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        passed: bool = await check(port).passes(0.0)
    return passed


ANSWERS = [
    (b"+PONG\r\n", RedisPing, True),
    (b"-LOADING Valkey is loading the dataset in memory\r\n", RedisPing, False),
    (b"", RedisPing, False),
    (b"HTTP/1.1 200 OK\r\n\r\n", lambda p: HttpOk(f"http://127.0.0.1:{p}/readyz"), True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", lambda p: HttpOk(f"http://127.0.0.1:{p}/"), True),
    (b"HTTP/1.1 503 Unavailable\r\n\r\n", lambda p: HttpOk(f"http://127.0.0.1:{p}/"), False),
    (b"HTTP/1.1 302 Found\r\n\r\n", lambda p: HttpOk(f"http://127.0.0.1:{p}/"), False),
]


@pytest.mark.parametrize(("reply", "check", "want"), ANSWERS)
def test_checks_of_servers(reply: bytes, check: Any, want: bool) -> None:
    assert asyncio.run(answer_once(reply, check)) is want


def test_nobody_listening_is_not_healthy() -> None:
    assert asyncio.run(RedisPing(free_port()).passes(0.0)) is False


FILES = [
    # seconds since written, seconds since started, want
    (1.0, 5.0, True),
    (40.0, 60.0, False),  # too old
    (5.0, 1.0, False),  # an earlier run's
]


@pytest.mark.parametrize(("written", "started", "want"), FILES)
def test_a_health_file_must_be_fresh_and_of_this_run(
    tmp_path: Path, written: float, started: float, want: bool
) -> None:
    now = time.time()
    path = tmp_path / "worker"
    path.write_text("")
    os.utime(path, (now - written, now - written))
    assert asyncio.run(FreshFile(path).passes(now - started)) is want


def test_the_probe_says_it_by_exit_status(tmp_path: Path) -> None:
    (tmp_path / "fresh").write_text("")
    assert probe.main([f"file:{tmp_path}/fresh"]) == 0
    assert probe.main([f"file:{tmp_path}/missing"]) == 1
    assert probe.main([f"http://127.0.0.1:{free_port()}/readyz"]) == 1
    assert probe.main(["ftp://x"]) == 2
    assert probe.main([]) == 2


def test_a_digest_sees_contents_names_and_the_rest(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = digest(tmp_path, ["*.py"], "x")
    assert digest(tmp_path, ["*.py"], "x") == first
    assert digest(tmp_path, ["*.py"], "y") != first
    (tmp_path / "a.py").write_text("2")
    changed = digest(tmp_path, ["*.py"], "x")
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, changed, digest(tmp_path, ["*.py"], "x")}) == 3


def test_stamps(tmp_path: Path) -> None:
    kept = Stamps(tmp_path / "stamps")
    assert not kept.holds("step", "v1")
    kept.write("step", "v1")
    assert kept.holds("step", "v1")
    assert not kept.holds("step", "v2")
    kept.clear("step")
    assert not kept.holds("step", "v1")


def test_preparation_is_due_until_stamped_and_again_without_the_database(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    database = tmp_path / "db.sqlite3"
    database.write_text("")
    assert prepare_due(config)
    stamps(config).write("prepared", prepared_for(config))
    assert not prepare_due(config)
    assert prepare_due(make_config(tmp_path, sandbox_port=9))
    database.unlink()
    assert prepare_due(config)
