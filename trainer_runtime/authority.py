"""The membership authority: a small TCP service outside any rank.

    python -m trainer_runtime.authority --host 127.0.0.1 --port 29400 [--min-replicas 1]

It serves any number of jobs (each replica names its job) and hosts the TCPStore over which groups
can be set up, so that both outlive every rank. It keeps nothing on disk: replicas of a running job
come back to a restarted authority with the epoch that they train in, and it goes on above that.

With CONCERTINA_SECRET (or CONCERTINA_TOKEN) set, it takes in only who proves that secret. With
--candidate it is one of several that replicas may follow (see succession.py); the first of them,
when it is first started, also gets --founds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.handshake import Handshake, Secret, new_nonce
from trainer_runtime.lines import Lines, check
from trainer_runtime.members import Timing, name_of
from trainer_runtime.membership import Membership, Message
from trainer_runtime.protocol import MAX_LINE, PROTOCOL, ProtocolError, to_line
from trainer_runtime.storehost import StoreHost
from trainer_runtime.succession import Succession

TICK_S = 0.1
HELLO_S = 5.0  # for a caller to say who it is
_OPEN_LIMIT, _HELLO_LIMIT = 4096, 1 << 18  # bytes of a line of a caller that proved nothing yet
_UNKNOWN_LIMIT = 256  # callers at once that proved nothing yet
_UNREAD_LIMIT = 16 * 1024 * 1024  # bytes that a caller leaves unread before it is given up
_REMEMBERED = 4096  # forgotten jobs that this authority won't found again


class BusyError(Exception):
    """Too many connections; worth another try."""


@dataclass(slots=True)
class Caller:
    """A connection that has said and proven who it is."""

    job: str
    name: str  # the member id of a replica, the name of an agent
    lane: int
    writer: asyncio.StreamWriter
    names: frozenset[str] = frozenset()  # of the replicas that an agent started


@dataclass
class Authority:
    """Connections and timers around `Membership`, one for each job."""

    min_replicas: int
    timing: Timing
    store: StoreHost
    secret: Secret | None = None
    candidate: bool = False
    founds: bool = False
    max_connections: int = 4096
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    jobs: dict[str, Membership] = field(default_factory=dict)
    replicas: dict[tuple[str, str], dict[int, Caller]] = field(default_factory=dict)
    agents: dict[tuple[str, str], Caller] = field(default_factory=dict)
    _open: int = 0
    _unknown: int = 0
    _lost_jobs: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def job(self, name: str) -> Membership:
        if name not in self.jobs:
            founds = self.founds and name not in self._lost_jobs
            self.jobs[name] = Membership(
                job=name, incarnation=self.incarnation, usual_min=self.min_replicas,
                timing=self.timing, store_of=self.store.ready,
                succession=Succession(founds) if self.candidate else None,
            )  # fmt: skip
        return self.jobs[name]

    # ---- to replicas and agents ------------------------------------------------------------

    def send(self, job: str, messages: list[Message]) -> None:
        for member, kind, values in messages:
            lanes = self.replicas.get((job, member), {})
            if kind == "close":
                self._close(job, member, values.get("cause", ""))
                continue
            to = [lanes.get(values["lane"])] if "lane" in values else list(lanes.values())
            for caller in to:
                if caller is not None:
                    self._write(caller, kind, **values)
            if kind == "quorum":
                epoch, size = values["epoch"], len(values["members"])
                if member == values["members"][0]["id"]:
                    self.store.sweep(f"{job}/{self.incarnation}", epoch)
                print(
                    f"authority: job {job}: epoch {epoch} tells {member}: "
                    f"{size} members ({values['cause']})",
                    flush=True,
                )

    def _write(self, caller: Caller, kind: str, **values: Any) -> None:
        if caller.writer.transport.get_write_buffer_size() > _UNREAD_LIMIT:
            caller.writer.transport.abort()
            return
        caller.writer.write(to_line(kind, **values))

    def _close(self, job: str, member: str, cause: str) -> None:
        """End a member's connections; with a cause its agent is told to replace it."""
        for caller in self.replicas.pop((job, member), {}).values():
            caller.writer.transport.abort()
        name = name_of(member)
        for (of, _), agent in self.agents.items():
            if cause and of == job and name in agent.names:
                self._write(agent, "expired", name=name, cause=cause)

    def hang_up(self) -> None:
        """Before the end: nobody hears that others' connections end, too."""
        for lanes in self.replicas.values():
            for caller in lanes.values():
                caller.writer.transport.abort()
        for agent in self.agents.values():
            agent.writer.transport.abort()

    # ---- from them -------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. A replica's end is its death, unless it had left."""
        self._open += 1
        try:
            if self._open > self.max_connections or self._unknown >= _UNKNOWN_LIMIT:
                raise BusyError(
                    f"connections: {self._open} are open and {self._unknown} of them haven't said "
                    "who they are; try again, or raise --max-connections"
                )
            await self._converse(Lines(reader), writer)
        except TimeoutError:
            writer.write(to_line("refused", message=f"no hello within {HELLO_S:g} s", retry=True))
        except BusyError as error:
            writer.write(to_line("refused", message=str(error), retry=True))
        except ProtocolError as error:
            writer.write(to_line("refused", message=str(error)))
        except OSError:
            pass
        finally:
            self._open -= 1
            with contextlib.suppress(OSError):
                writer.close()

    async def _converse(self, lines: Lines, writer: asyncio.StreamWriter) -> None:
        self._unknown += 1
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await self._who(lines, writer)
        finally:
            self._unknown -= 1
        if hello is None:
            return
        if hello.get("role") == "agent":
            await self._serve_agent(hello, lines, writer)
        else:
            await self._serve_replica(hello, lines, writer)

    async def _who(self, lines: Lines, writer: asyncio.StreamWriter) -> dict[str, Any] | None:
        """The caller's hello, once it has proven the secret. None if it goes away before."""
        opened = await lines.message(_OPEN_LIMIT)
        if opened is None:
            return None
        if opened.get("protocol") != PROTOCOL:
            raise ProtocolError(
                f"protocol {opened.get('protocol')!r} is not spoken here; this authority "
                f"speaks {PROTOCOL}: run the same trainer_runtime on both sides"
            )
        if check(opened)["kind"] != "open":
            raise ProtocolError("the first message must be an open")
        shaken = Handshake(opened["job"], opened["nonce"], new_nonce(), self.secret)
        term = self.jobs[shaken.job].term if shaken.job in self.jobs else 0
        challenge = to_line(
            "challenge", protocol=PROTOCOL, nonce=shaken.authority_nonce,
            proof=shaken.proof("authority"), term=term,
        )  # fmt: skip
        writer.write(challenge)
        hello = await lines.message(_HELLO_LIMIT)
        if hello is None:
            return None
        role = "agent" if hello.get("role") == "agent" else "replica"
        if check(hello, role)["kind"] != "hello" or hello["job"] != shaken.job:
            raise ProtocolError("after the challenge comes a hello for the same job")
        name = hello["name"] if role == "agent" else hello["member"]
        if not shaken.proven(hello.get("proof"), role, name):
            given = "a wrong one" if hello.get("proof") else "none"
            raise ProtocolError(
                f"secret: {name} must prove the secret of job {shaken.job} and proved {given}; "
                "give both sides the same CONCERTINA_SECRET (or CONCERTINA_TOKEN)"
            )
        return hello

    async def _serve_replica(
        self, hello: dict[str, Any], lines: Lines, writer: asyncio.StreamWriter
    ) -> None:
        self._check_candidates(hello)
        caller = Caller(hello["job"], hello["member"], hello.get("lane", 0), writer)
        key, job = (caller.job, caller.name), self.job(caller.job)
        if caller.lane in self.replicas.get(key, {}):
            messages = job.lost(caller.name, time.monotonic())
            self._close(caller.job, caller.name, "")
            self.send(caller.job, messages)
        lanes = self.replicas.setdefault(key, {})
        lanes[caller.lane] = caller
        try:
            self.send(caller.job, job.hello(caller.name, hello, time.monotonic()))
            await self._listen(job, caller, lines)
        finally:
            if lanes.get(caller.lane) is caller and self.replicas.get(key) is lanes:
                del lanes[caller.lane]
                self.send(caller.job, job.lost(caller.name, time.monotonic()))
                if not lanes:
                    self.replicas.pop(key, None)

    def _check_candidates(self, hello: dict[str, Any]) -> None:
        if hello.get("candidates", 1) > 1 and not self.candidate:
            raise ProtocolError(
                f"candidates: {hello['name']} names {hello['candidates']} authorities, and this "
                "one was started without --candidate: it would not ask for a majority"
            )

    async def _listen(self, job: Membership, caller: Caller, lines: Lines) -> None:
        member = caller.name
        while (said := await lines.message(MAX_LINE)) is not None:
            now, said = time.monotonic(), check(said) | {"lane": caller.lane}
            match said["kind"]:
                case "beat":
                    messages = job.beat(member, said, now)
                case "park":
                    messages = job.park(member, said, now)
                case "leave":
                    messages = job.leave(member, now)
                case "bye":
                    messages = job.bye(member, said, now)
                case _:
                    raise ProtocolError(f"kind: {said['kind']} is not expected here")
            self.send(caller.job, messages)

    async def _serve_agent(
        self, hello: dict[str, Any], lines: Lines, writer: asyncio.StreamWriter
    ) -> None:
        agent = Caller(hello["job"], hello["name"], 0, writer, frozenset(hello["names"]))
        key = (agent.job, agent.name)
        if key in self.agents:
            self.agents[key].writer.transport.abort()
        self.agents[key] = agent
        self._write(agent, "welcome", incarnation=self.incarnation)
        try:
            while (said := await lines.message(MAX_LINE)) is not None:
                job, now = self.job(agent.job), time.monotonic()
                match check(said, "agent")["kind"]:
                    case "names":
                        agent.names = frozenset(said["names"])
                    case "dead":
                        self.send(agent.job, job.dead(said, now))
                    case "drain":
                        self.send(agent.job, job.drain(said["names"], now))
                    case _:
                        raise ProtocolError("hello: is said once")
        finally:
            if self.agents.get(key) is agent:
                del self.agents[key]

    # ---- time ------------------------------------------------------------------------------

    async def tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.store.ready()
            now = time.monotonic()
            for name, job in list(self.jobs.items()):
                self.send(name, job.tick(now))
                # What agents said of deaths is kept for a succession while they are here.
                kept = self.candidate and any(of == name for of, _ in self.agents)
                if job.forgettable(now) and not kept:
                    self._forget(name, job)

    def _forget(self, name: str, job: Membership) -> None:
        del self.jobs[name]
        self.store.sweep(f"{name}/{self.incarnation}", None)
        if job.succession is not None and not job.succession.extinct():
            self._lost_jobs[name] = None  # it may go on elsewhere
            while len(self._lost_jobs) > _REMEMBERED:
                self._lost_jobs.popitem(last=False)
        print(f"authority: job {name}: forgotten, nobody has been here for long", flush=True)


async def run(args: argparse.Namespace) -> None:
    store, secret = StoreHost(args.host), Secret.from_env()
    timing = Timing(args.silence_s, args.progress_s, args.reconnect_s, args.forget_s)
    authority = Authority(
        args.min_replicas, timing, store, secret, args.candidate, args.founds, args.max_connections
    )
    server = await asyncio.start_server(authority.serve, args.host, args.port)
    port = server.sockets[0].getsockname()[1]
    print(f"authority: listening on {args.host}:{port}", flush=True)
    if secret is None:
        print("authority: open to whoever can connect: no CONCERTINA_SECRET is set", flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    store.start()
    ticking, stopping = asyncio.create_task(authority.tick()), asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, ticking], return_when=asyncio.FIRST_COMPLETED)
    server.close()
    authority.hang_up()
    if not stopping.done():
        await ticking  # the timer ended: raise why


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    usual = Timing()
    parser = argparse.ArgumentParser(
        prog="python -m trainer_runtime.authority", description=__doc__
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=29400, help="0: any free one, which is printed")
    add("--min-replicas", type=int, default=1)
    add("--candidate", action="store_true", help="one of several; quorums need a majority")
    add("--founds", action="store_true", help="may begin jobs: the first candidate, first start")
    add("--max-connections", type=int, default=4096)
    for name in ("silence", "progress", "reconnect", "forget"):
        add(f"--{name}-s", type=float, default=getattr(usual, name))
    args = parser.parse_args(argv)
    for name in ("silence_s", "progress_s", "reconnect_s", "forget_s"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name.replace('_', '-')}: must be above 0")
    for name in ("min_replicas", "max_connections"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: must be at least 1")
    if args.founds and not args.candidate:
        parser.error("--founds: goes with --candidate; a single authority always may")
    return args


def main() -> None:
    args = parse()
    asyncio.run(run(args))
    sys.stdout.flush()
    os._exit(0)  # nothing is on disk, and the store's thread may be in the middle of an import


if __name__ == "__main__":
    main()
