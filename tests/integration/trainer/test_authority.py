"""The authority as a process of its own, with callers of every kind on its port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trainer.job import ROOT, wait_for
from trainer_runtime.agentlink import AgentLink, LastWord, last_word
from trainer_runtime.client import Client
from trainer_runtime.handshake import Secret, open_connection
from trainer_runtime.lines import MAX_LANES
from trainer_runtime.protocol import PROTOCOL, Phase, Quorum, from_line, to_line


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONCERTINA_SECRET", "CONCERTINA_TOKEN"):
        monkeypatch.delenv(name, raising=False)


class Server:
    def __init__(self, *arguments: str, port: int = 0, **environment: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CONCERTINA_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime.authority", "--port", str(port), *arguments],
            cwd=ROOT, env={**clean, "PYTHONPATH": str(ROOT), **environment},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.said: list[str] = []
        assert self.process.stdout is not None
        while not self.said or "listening on" not in self.said[-1]:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said.append(line)
        self.address = ("127.0.0.1", int(self.said[-1].rpartition(":")[2]))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(10)


@contextmanager
def authority(*arguments: str, **environment: str) -> Iterator[Server]:
    server = Server(*arguments, **environment)
    try:
        yield server
    finally:
        server.end()


@contextmanager
def replica(
    where: Any, name: str, *, secret: Secret | None = None, **given: Any
) -> Iterator[Client]:
    member = given.pop("member", f"{name}#1")
    client = Client(
        where, job="j", member=member, name=name, min_replicas=given.pop("least", 1),
        on_superseded=lambda notice: None, secret=secret, **given,
    )  # fmt: skip
    client.start()
    try:
        yield client
    finally:
        client.close()


def quorum(client: Client) -> Quorum:
    return wait_for(f"quorum of {client.name}", lambda: client.next_quorum(0.1), 10)


def trained(client: Client, step: int = 1) -> None:
    """A step of its quorum was committed, as the gate sees it."""
    with client.commit(client.claim.epoch, alone=len(client.claim.quorum) == 1) as allowed:
        assert allowed
        client.claim.step, client.claim.live = step, True
        client.claim.state_epoch = client.claim.epoch


def settle(*clients: Client, size: int | None = None) -> list[Quorum]:
    """Park whoever is asked to until all train in one quorum of them all."""
    size = size or len(clients)
    latest: dict[str, Quorum] = {}

    def settled() -> bool:
        for client in clients:
            if (client.pending or client.superseded) and not client.claim.parked:
                client.park(failed=client.superseded is not None)
            if client.claim.parked and (found := client.next_quorum(0.02)) is not None:
                latest[client.member + str(client.lane)] = found
        epochs = {client.claim.epoch for client in clients}
        calm = not any(c.pending or c.superseded or c.claim.parked for c in clients)
        return calm and len(epochs) == 1 and len(clients[0].claim.quorum) == size

    wait_for(f"{size} in one quorum", settled, 20)
    return list(latest.values())


def cut(client: Client) -> None:
    """As if its connection had broken."""
    connection = client._socket
    assert connection is not None
    connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("theirs", "mine", "want"),
    [
        ("s3", b"s3", None),
        ("s3", b"other", "can't prove the secret of job j: it has another secret"),
        ("", b"s3", "can't prove the secret of job j: it has none"),
        ("s3", None, "must prove the secret of job j and proved none"),
    ],
)
def test_secret(theirs: str, mine: bytes | None, want: str | None) -> None:
    environment = {"CONCERTINA_SECRET": theirs} if theirs else {}
    with (
        authority(**environment) as server,
        replica(server.address, "a", secret=Secret(mine) if mine else None) as client,
    ):
        if want is None:
            assert quorum(client).names == ("a",)
        else:
            assert want in wait_for("a refusal", lambda: client.refused, 10)


def test_an_open_authority_says_so_once() -> None:
    with authority() as server:
        assert server.process.stdout is not None
        assert "open to whoever can connect" in server.process.stdout.readline()


def test_a_hello_with_the_wrong_proof_is_refused() -> None:
    """It knows no secret, but opens the connection as if it did."""
    with authority(CONCERTINA_SECRET="s3") as server, call(server) as caller:
        shaken, _ = open_connection(caller, "j", None)
        caller.sendall(hello(proof=shaken.proof("replica", "a#1") or "0" * 64))
        assert "proved a wrong one" in answer(caller)["message"]


def test_a_secret_that_follows_from_the_token_does_not_ask_the_authority_for_it() -> None:
    with (
        authority() as server,
        replica(server.address, "a", secret=Secret(b"token", strict=False)) as client,
    ):
        assert quorum(client).names == ("a",)


@contextmanager
def call(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(server.address, timeout=15) as caller:
        yield caller


def answer(caller: socket.socket) -> dict[str, Any]:
    with caller.makefile("rb") as lines:
        return from_line(lines.readline())


def hello(**said: Any) -> bytes:
    usual = {"protocol": PROTOCOL, "job": "j", "member": "a#1", "name": "a", "epoch": 0, "step": 0,
             "state_epoch": 0, "live": False, "parked": True}  # fmt: skip
    return to_line("hello", **usual | said)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (to_line("hello", protocol=1, job="j"), "protocol 1 is not spoken here; this authority "
         "speaks 2: run the same trainer_runtime on both sides"),
        (to_line("beat", protocol=PROTOCOL, n=1, counter=1, phase="x"), "must be an open"),
        (to_line("open", protocol=PROTOCOL, job=3), "job: must be str"),
        (b"GET / HTTP/1.1\r\n\r\n", "not JSON"),
        (b"x" * 10_000, "longer than the 4096 bytes"),
    ],
)  # fmt: skip
def test_strangers_are_refused(line: bytes, want: str) -> None:
    with authority() as server, call(server) as caller:
        caller.sendall(line)
        assert want in answer(caller)["message"]


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({"lane": 2, "lanes": 2}, "lane: must be one of 0 to lanes - 1"),
        ({"lanes": MAX_LANES + 1}, "lane: must be one of"),
        ({"quorum": [3]}, "quorum: must be a list of texts"),
        ({"job": "other"}, "hello for the same job"),
        ({"candidates": 2}, "started without --candidate"),
    ],
)
def test_hellos_are_refused(said: dict[str, Any], want: str) -> None:
    with authority() as server, call(server) as caller:
        open_connection(caller, "j", None)
        caller.sendall(hello(**said))
        assert want in answer(caller)["message"]


def test_who_says_nothing_is_let_go_and_crowds_are_bounded() -> None:
    with authority("--max-connections", "3") as server, ExitStack() as stack:
        silent = [stack.enter_context(call(server)) for _ in range(3)]
        last = stack.enter_context(call(server))
        assert "connections: 4 are open" in answer(last)["message"]
        said = answer(silent[0])
        assert (said["message"], said["retry"]) == ("no hello within 5 s", True)


def test_replica_of_two_lanes() -> None:
    with authority() as server, ExitStack() as stack:
        first, second = (
            stack.enter_context(replica(server.address, "a", lane=lane, lanes=2)) for lane in (0, 1)
        )
        assert quorum(first) == quorum(second)
        other = stack.enter_context(replica(server.address, "b"))
        settle(first, second, other, size=2)
        second.close()  # without a word: the replica is lost, lane 0 is cut off and comes back
        wait_for("b goes on alone", lambda: settle(other, size=1) or True)
        wait_for("lane 0 was fenced", lambda: first.superseded or not first.connected)


def test_agent_drains_and_hears_of_who_was_given_up(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []
    with authority("--silence-s", "2", "--progress-s", "1") as server, ExitStack() as stack:
        link = AgentLink(
            [server.address], job="j", agent="n", on_expired=lambda *said: heard.append(said)
        )
        link.start()
        stack.callback(link.close)
        assert link.wait_connected(10)
        link.started("a", "b")
        one, two = (stack.enter_context(replica(server.address, name)) for name in "ab")
        settle(one, two)
        link.drain(["b"])
        wait_for("b is asked to go", lambda: two.pending)
        one.park(failed=False)
        two.park(failed=False)
        wait_for("b may go", lambda: two.released)
        quorum(one).rank("a#1")
        one.working(Phase.COMPUTE)  # and then it stands still
        wait_for("the agent hears", lambda: heard)
        assert heard == [("a", "replica_hung")]


def test_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.epoch"
    assert last_word(path) == LastWord("", -1)
    monkeypatch.setenv("CONCERTINA_EPOCH_FILE", str(path))
    with authority() as server, replica(server.address, "a") as client:
        assert last_word(path) == ("a#1", 0)
        quorum(client)
        assert last_word(path) == ("a#1", 1)
    path.write_text("[]")
    assert last_word(path) == LastWord("", -1)


def test_finished_job_is_begun_anew_after_a_while() -> None:
    with authority("--forget-s", "0.3") as server:
        with replica(server.address, "a") as client:
            quorum(client)
            client.bye("finished", 10)
        until = time.monotonic() + 10
        while True:
            with replica(server.address, "b", member="b#2") as client:
                wait_for("an answer", lambda c=client: c.finished or c._quorum, 10)
                if not client.finished:
                    assert quorum(client).last_step == 0
                    break
            assert time.monotonic() < until, "a job that others ask for is remembered for ever"


# ---- succession -----------------------------------------------------------------------------


def candidates(stack: ExitStack, count: int = 2) -> list[Server]:
    founder = ("--candidate", "--founds", "--reconnect-s", "1")
    servers = [Server(*(founder if not n else ("--candidate", "--reconnect-s", "1")))
               for n in range(count)]  # fmt: skip
    for server in servers:
        stack.callback(server.end)
    return servers


def test_authority_is_lost_and_another_takes_over() -> None:
    with ExitStack() as stack:
        servers = candidates(stack)
        where = [server.address for server in servers]
        clients = [stack.enter_context(replica(where, name)) for name in "abc"]
        settle(*clients)
        for client in clients:
            trained(client)
        before = clients[0].claim
        epoch, term = before.epoch, before.term
        began = time.monotonic()
        servers[0].signal(signal.SIGKILL)
        wait_for("all at the other", lambda: all(c.address == where[1] for c in clients))
        wait_for("asked to park", lambda: all(c.pending for c in clients))
        (now, *_) = settle(*clients)
        print(f"succession took {time.monotonic() - began:.3f} s")
        assert now.epoch > epoch
        assert now.term == term + 1
        assert [peer.id for peer in now.members] == list(before.quorum)
        # A new one comes to the successor, too: the first is gone.
        new = stack.enter_context(replica(where, "d"))
        settle(*clients, new)


def test_cut_off_half_waits_and_comes_home() -> None:
    """b and c lose the first authority for a while; a (one of three) can't go on without them."""
    with ExitStack() as stack:
        servers = candidates(stack)
        where = [server.address for server in servers]
        a = stack.enter_context(replica([*where[:1], ("127.0.0.1", 9)], "a"))
        b, c = (stack.enter_context(replica(where, name)) for name in "bc")
        settle(a, b, c)
        for client in (a, b, c):
            trained(client)
        epoch = a.claim.epoch
        for client in (b, c):
            client._route.addresses[0] = ("127.0.0.1", 9)  # nobody listens there
            cut(client)
        settle(b, c)
        assert b.claim.epoch > epoch
        trained(b, 2)
        trained(c, 2)
        wait_for("a was told", lambda: a.superseded)
        a.park(failed=True)
        waiting = wait_for("a waits", a.take_waiting)
        assert (waiting["minority"], sorted(waiting["absent"])) == (True, ["b", "c"])
        assert a.next_quorum(0.5) is None
        a._route.addresses[1] = where[1]  # the partition heals
        settle(a, b, c)
        assert a.claim.term == b.claim.term == 2


def test_death_certificate_lets_the_rest_go_on(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = candidates(stack)
        where = [server.address for server in servers]
        link = AgentLink(where, job="j", agent="n", on_expired=lambda *said: None)
        link.start()
        stack.callback(link.close)
        assert link.wait_connected(10)
        a, b = (stack.enter_context(replica(where, name)) for name in "ab")
        settle(a, b)
        for client in (a, b):
            trained(client)
        first, second = (c for c in sorted((a, b), key=lambda c: a.claim.quorum.index(c.member)))
        first.close()
        wait_for("it is told", lambda: second.superseded)
        second.park(failed=True)
        wait_for("it waits", second.take_waiting)
        assert second.next_quorum(0.3) is None
        link.dead(first.name, -9, last=LastWord(first.member, first.claim.epoch))
        assert quorum(second).names == (second.name,)
