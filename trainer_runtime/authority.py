"""The membership authority: a small TCP service outside any rank.

    python -m trainer_runtime.authority --host 127.0.0.1 --port 29400 [--min-replicas 1]

It serves any number of jobs (each replica names its job) and hosts the TCPStore over which groups
are set up, so that both outlive every rank. It keeps nothing on disk: replicas of a running job
come back to a restarted authority with the epoch that they train in, and it goes on above that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.membership import Membership, Message, Timing
from trainer_runtime.protocol import MAX_LINE, PROTOCOL, ProtocolError, from_line, to_line

TICK_S = 0.1
_REQUIRED: dict[str, dict[str, type]] = {
    "hello": {
        "job": str, "member": str, "name": str, "epoch": int, "state_epoch": int, "step": int,
        "live": bool, "parked": bool,
    },
    "beat": {"n": int, "counter": int, "phase": str},
    "park": {"epoch": int, "step": int, "live": bool},
    "leave": {},
    "bye": {"reason": str},
}  # fmt: skip


def check(message: dict[str, Any]) -> dict[str, Any]:
    """Raises ProtocolError naming the field of a replica's message that is missing or wrong."""
    required = _REQUIRED.get(message["kind"])
    if required is None:
        raise ProtocolError(f"kind: {message['kind']!r} is not known")
    for name, kind in required.items():
        if not isinstance(message.get(name), kind):
            raise ProtocolError(f"{name}: must be {kind.__name__} (got {message.get(name)!r})")
    return message


class StoreHost:
    """The TCPStore, brought up in the background: importing torch takes a second or more."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.port: int | None = None
        self.error: Exception | None = None
        self._store: Any = None

    def start(self) -> None:
        # A daemon: SIGTERM must not wait for an import.
        threading.Thread(target=self._open, name="store", daemon=True).start()

    def _open(self) -> None:
        try:
            from datetime import timedelta

            from torch.distributed import TCPStore

            self._store = TCPStore(
                self.host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30)
            )
            self.port = self._store.port
        except Exception as error:
            self.error = error

    def ready(self) -> int | None:
        """The port, None while it comes up. Raises what kept it from coming up."""
        if self.error is not None:
            raise self.error
        return self.port


@dataclass
class Authority:
    """Connections and timers around `Membership`, one for each job."""

    host: str
    min_replicas: int
    timing: Timing
    store: StoreHost
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    jobs: dict[str, Membership] = field(default_factory=dict)
    writers: dict[tuple[str, str], asyncio.StreamWriter] = field(default_factory=dict)
    _bound: set[asyncio.Task[None]] = field(default_factory=set)

    def job(self, name: str) -> Membership:
        if name not in self.jobs:
            self.jobs[name] = Membership(
                job=name, incarnation=self.incarnation, min_replicas=self.min_replicas,
                timing=self.timing, store_of=self.store.ready,
            )  # fmt: skip
        return self.jobs[name]

    def send(self, job: str, messages: list[Message]) -> None:
        for member, kind, values in messages:
            writer = self.writers.get((job, member))
            if writer is None:
                continue
            if kind == "close":
                writer.transport.abort()
                continue
            writer.write(to_line(kind, **values))
            if kind == "quorum":
                print(
                    f"authority: job {job}: epoch {values['epoch']} tells {member}: "
                    f"{len(values['members'])} members ({values['cause']})",
                    flush=True,
                )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One replica's connection; its end is the replica's death, unless it had left."""
        key: tuple[str, str] | None = None
        try:
            first = check(from_line(await reader.readline()))
            if first["kind"] != "hello":
                raise ProtocolError("the first message must be a hello")
            if first.get("protocol") != PROTOCOL:
                raise ProtocolError(
                    f"protocol {first.get('protocol')!r} is not spoken here; this authority "
                    f"speaks {PROTOCOL}: run the same trainer_runtime on both sides"
                )
            key = (first["job"], first["member"])
            old = self.writers.get(key)
            if old is not None:
                old.transport.abort()
                self.send(key[0], self.job(key[0]).lost(key[1], time.monotonic()))
            self.writers[key] = writer
            job = self.job(key[0])
            self.send(key[0], job.hello(key[1], first, time.monotonic()))
            await self._listen(job, key, reader)
        except ProtocolError as error:
            writer.write(to_line("refused", message=str(error)))
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass
        finally:
            if key is not None and self.writers.get(key) is writer:
                del self.writers[key]
                self.send(key[0], self.job(key[0]).lost(key[1], time.monotonic()))
            with contextlib.suppress(OSError):
                writer.close()

    async def _listen(
        self, job: Membership, key: tuple[str, str], reader: asyncio.StreamReader
    ) -> None:
        name, member = key
        while line := await reader.readline():
            said, now = check(from_line(line)), time.monotonic()
            match said["kind"]:
                case "beat":
                    self.send(name, job.beat(member, said, now))
                case "park":
                    self.send(name, job.park(member, said, now))
                case "leave":
                    self.send(name, job.leave(member, now))
                case "bye":
                    self.send(name, job.bye(member, said, now))
                case _:
                    raise ProtocolError(f"kind: {said['kind']} is not expected here")

    async def tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.store.ready()
            now = time.monotonic()
            for name, job in self.jobs.items():
                self.send(name, job.tick(now))


async def run(args: argparse.Namespace) -> None:
    store = StoreHost(args.host)
    timing = Timing(silence=args.silence_s, progress=args.progress_s, reconnect=args.reconnect_s)
    authority = Authority(args.host, args.min_replicas, timing, store)
    server = await asyncio.start_server(authority.serve, args.host, args.port, limit=MAX_LINE)
    port = server.sockets[0].getsockname()[1]
    print(f"authority: listening on {args.host}:{port}", flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    store.start()
    ticking, stopping = asyncio.create_task(authority.tick()), asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, ticking], return_when=asyncio.FIRST_COMPLETED)
    server.close()
    for writer in authority.writers.values():
        writer.transport.abort()
    if not stopping.done():
        await ticking  # the timer ended: raise why


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    usual = Timing()
    parser = argparse.ArgumentParser(
        prog="python -m trainer_runtime.authority", description=__doc__
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=29400, help="0: any free one, which is printed")
    parser.add_argument("--min-replicas", type=int, default=1)
    parser.add_argument("--silence-s", type=float, default=usual.silence)
    parser.add_argument("--progress-s", type=float, default=usual.progress)
    parser.add_argument("--reconnect-s", type=float, default=usual.reconnect)
    args = parser.parse_args(argv)
    for name in ("silence_s", "progress_s", "reconnect_s"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name.replace('_', '-')}: must be above 0")
    if args.min_replicas < 1:
        parser.error("--min-replicas: must be at least 1")
    return args


def main() -> None:
    args = parse()
    asyncio.run(run(args))
    sys.stdout.flush()
    os._exit(0)  # nothing is on disk, and the store's thread may be in the middle of an import


if __name__ == "__main__":
    main()
