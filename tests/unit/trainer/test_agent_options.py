"""The launcher's command line, the budget, lines, and ports."""

from __future__ import annotations

import os
import socket

import pytest

from trainer_runtime.agent import logs, options
from trainer_runtime.agent.budget import Budget
from trainer_runtime.agent.logs import Console, Lines, LogFile
from trainer_runtime.agent.options import parse
from trainer_runtime.agent.ports import HeldPort, connected


@pytest.fixture(autouse=True)
def _clean(monkeypatch) -> None:
    for name in list(os.environ):
        if name.startswith("CONCERTINA_") or name in ("POD_NAME", "JOB_COMPLETION_INDEX"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("words", "want"),  # low, replicas, ranks, least
    [
        ("s.py", (1, 1, 1, 1)),
        ("--nproc-per-node 4 s.py", (4, 4, 1, 4)),
        ("--nproc_per_node=4 s.py", (4, 4, 1, 4)),
        ("--replicas 2:4 s.py", (2, 4, 1, 2)),
        ("--replicas 2 --ranks-per-replica 4 s.py", (2, 2, 4, 2)),
        ("--nproc-per-node 8 --ranks-per-replica 4 s.py", (2, 2, 4, 2)),
        ("--nproc-per-node 8 --replicas 1 s.py", (1, 1, 8, 1)),
        ("--nnodes 2:4 --replicas 1:2 s.py", (1, 2, 1, 2)),
    ],
)
def test_sizes(words: str, want: tuple[int, ...]) -> None:
    got = parse(words.split())
    assert (got.low, got.replicas, got.ranks, got.least) == want


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ("", "script: name one, or a module with -m, or --recipe NAME"),
        ("--replicas 3:2 s.py", "--replicas: must be N or MIN:MAX, such as 2:8 (got '3:2')"),
        ("--nproc-per-node 0 s.py", "must be at least 1 (got 0)"),
        ("--nproc-per-node 5 --ranks-per-replica 2 s.py", "5 can't be split by 2"),
        ("--nproc-per-node 4 --replicas 2 --ranks-per-replica 3 s.py", "leave one out"),
        ("--standbys -1 s.py", "--standbys: must not be negative"),
        ("--authority nowhere s.py", "--authority: must be host:port"),
        ("--headless-service svc s.py", "--headless-service: the host name must be NAME-INDEX"),
    ],
)
def test_what_is_wrong_is_said(words: str, want: str, capsys, monkeypatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    with pytest.raises(SystemExit) as error:
        parse(words.split())
    assert error.value.code == 2
    assert want in capsys.readouterr().err


def test_the_script_keeps_its_own_arguments() -> None:
    got = parse(["-m", "pkg.train", "--replicas", "7", "-m"])
    assert got.module
    assert got.script == ("pkg.train", "--replicas", "7", "-m")
    assert got.replicas == 1


def test_a_recipe_is_its_module() -> None:
    got = parse(["--recipe", "llama-tiny", "--set", "a.b=1", "--set", "c=x y"])
    assert got.module
    assert got.script == (
        "trainer_runtime.recipes.run", "llama-tiny", "--set", "a.b=1", "--set", "c=x y",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("host", "index", "want", "hosts"),
    [
        ("job-0", None, "job-0.svc:29400", ("0.0.0.0", 29400)),
        ("job-3", None, "job-0.svc:29400", None),
        ("my-job-1", "1", "my-job-0.svc:29400", None),
    ],
)
def test_index_0_of_the_service_hosts_the_authority(host, index, want, hosts, monkeypatch) -> None:
    monkeypatch.setattr(options.socket, "gethostname", lambda: host)
    if index is not None:
        monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
    got = parse(["--headless-service", "svc", "s.py"])
    assert (got.authority, got.host_authority) == (want, hosts)


def test_the_endpoint_s_own_host_starts_the_authority() -> None:
    here = parse(["--rdzv-endpoint", "127.0.0.1:29511", "s.py"])
    assert here.host_authority == ("127.0.0.1", 29511)
    there = parse(["--rdzv-endpoint", "192.0.2.1", "s.py"])  # TEST-NET-1: nobody's
    assert (there.authority, there.host_authority) == ("192.0.2.1:29400", None)
    told = parse(["--rdzv-endpoint", "127.0.0.1", "--node-rank", "1", "s.py"])
    assert told.host_authority is None


def test_budget_counts_in_its_window_a_slot() -> None:
    budget = Budget(2, window=10.0)
    assert [budget.spend(0, now) for now in (0.0, 1.0, 2.0)] == [True, True, False]
    assert budget.spend(1, 2.0)
    assert [budget.spend(0, now) for now in (11.5, 12.5)] == [True, True]


def test_lines_are_whole_and_bounded(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(logs, "MAX_LINE", 4)
    read, write = os.pipe()
    console = Console()
    lines = Lines(console, write, "[p] ", LogFile(tmp_path / "a" / "b.log"))
    for data in (b"ab", b"c\nde", b"\n", b"0123456789", b"x\ny"):
        lines.feed(data)
    lines.close()
    console.close()
    want = ["abc", "de", "0123", "4567", "89x", "y"]
    assert (tmp_path / "a" / "b.log").read_text().splitlines() == want
    os.close(write)
    with os.fdopen(read) as said:
        assert said.read() == "".join(f"[p] {each}\n" for each in want)


def test_a_console_that_stands_still_holds_nobody_up(monkeypatch) -> None:
    monkeypatch.setattr(logs, "QUEUE_LINES", 5)
    read, write = os.pipe()
    console = Console()
    big = b"x" * (1 << 20) + b"\n"
    console.write(write, big)  # more than a pipe holds: the thread blocks in it
    for n in range(20):
        console.write(write, b"%d\n" % n)
    with os.fdopen(read, "rb") as said:
        lines = [said.readline() for _ in range(6)]
        if lines[0] != big:  # dropped too: the thread hadn't begun with it
            assert lines[0] == b"[agent] console too slow: 16 lines dropped\n"
        else:
            assert lines[1] == b"[agent] console too slow: 15 lines dropped\n"
            lines.append(said.readline())
        assert lines[-5:] == [b"%d\n" % n for n in range(15, 20)]
        console.close()
        os.close(write)


def test_a_log_file_is_bounded(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 10)
    file = LogFile(tmp_path / "x.log")
    for n in range(5):
        file.write(b"12%d\n" % n)
    file.close()
    assert (tmp_path / "x.log").read_bytes() == b"124\n"
    assert (tmp_path / "x.log.1").read_bytes() == b"122\n123\n"


def test_a_held_port_can_be_listened_on_by_whom_it_is_for() -> None:
    held = HeldPort("127.0.0.1")
    try:
        with socket.socket() as stranger, pytest.raises(OSError):
            stranger.bind(("127.0.0.1", held.port))
        for _ in range(2):
            with socket.create_server(("127.0.0.1", held.port)):  # sets SO_REUSEADDR
                pass
    finally:
        held.close()


def test_who_is_connected_to_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not connected(os.getpgrp(), port)
        with socket.create_connection(("127.0.0.1", port)):
            assert connected(os.getpgrp(), port)
            assert not connected(1, port)
