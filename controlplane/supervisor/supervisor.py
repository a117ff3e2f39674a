"""Brings the processes up in order, keeps them up, takes them down in reverse.

One asyncio loop; no threads. It knows processes, health and signals, nothing of what they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from controlplane.supervisor.config import ROOT, Config
from controlplane.supervisor.posix import descendants, kill_quietly, parents, reap_adopted
from controlplane.supervisor.process import Child
from controlplane.supervisor.specs import ProcessSpec

STOP_SECONDS = 4.3  # the whole stop; the promise is 5
# One slow process must not use up the time of those that it needs (training pods have a grace too).
STAGGER_SECONDS = 0.8
FIRST_TRIES = 3
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
ORPHAN_SECONDS = 3.0
STEADY_SECONDS = 60.0  # up this long: the next crash starts from the shortest pause again


class StartFailed(Exception):
    """A process that never became healthy, in words for the person at the terminal."""


class Supervisor:
    """`specs` in any order; `started` (unix) is what the times in `up.json` count from.

    `alone`: every process under this one is the supervisor's to end, also those it adopted.
    """

    def __init__(
        self,
        config: Config,
        specs: Sequence[ProcessSpec],
        environment: dict[str, str],
        *,
        say: Callable[[str], None],
        started: float,
        folder: Path = ROOT,
        alone: bool = True,
    ) -> None:
        self.config = config
        self.say = say
        self.started = started
        self.alone = alone
        self.children = {
            spec.name: Child(
                spec,
                environment=environment,
                folder=folder,
                logs=config.logs,
                echo=say if config.verbose else None,
            )
            for spec in specs
        }
        self.ready_s: dict[str, float] = {}
        self._stop = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def request_stop(self) -> None:
        """A signal: the first stops in order, the second at once."""
        if self._stop.is_set():
            self.say("Forced: ending every process now.")
            self._kill_everything()
        else:
            self.say("Stopping ... (Ctrl-C once more ends everything at once)")
        self._stop.set()

    async def run(self, on_healthy: Callable[[str], None], on_up: Callable[[], None]) -> None:
        """Until a stop is asked for. Raises StartFailed. Nothing is left behind either way."""
        housekeeping = asyncio.create_task(self._keep_house())
        bring_up = asyncio.create_task(self._bring_all_up(on_healthy))
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({bring_up, stop}, return_when=asyncio.FIRST_COMPLETED)
            if bring_up.done():
                bring_up.result()
                on_up()
                await stop
        finally:
            self._stop.set()
            for task in (bring_up, stop):
                task.cancel()
            await asyncio.gather(bring_up, stop, return_exceptions=True)
            await self._take_down()
            housekeeping.cancel()

    async def _bring_all_up(self, on_healthy: Callable[[str], None]) -> None:
        async def first_health(child: Child) -> None:
            await child.settled.wait()
            if not child.healthy.is_set():
                return
            self.ready_s[child.spec.name] = round(time.time() - self.started, 3)
            on_healthy(child.spec.name)

        for name, child in self.children.items():
            self._tasks[name] = asyncio.create_task(self._keep(child))
        waits = {asyncio.create_task(first_health(c)) for c in self.children.values()}
        try:
            watched: set[asyncio.Task[None]] = {*waits, *self._tasks.values()}
            while any(not task.done() for task in waits):
                done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # raises StartFailed; one that runs once just ends
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _keep(self, child: Child) -> None:
        """Start it after those it needs, and again whenever it ends."""
        name = child.spec.name
        for needed in child.spec.after:
            if needed in self.children:
                await self.children[needed].healthy.wait()
        if child.spec.once:
            return await self._run_once(child)
        failures = 0
        ever_healthy = False
        while not self._stop.is_set():
            await child.start()
            if await child.wait_until_healthy():
                ever_healthy = True
                status = await child.wait()
            elif child.running:
                child.end_group()
                await child.wait()
                status = None
            else:
                status = await child.wait()
            if self._stop.is_set():
                return
            child.healthy.clear()
            steady = time.time() - child.started_at > STEADY_SECONDS
            failures = 1 if steady else failures + 1
            how = describe(status, child.spec.start_seconds)
            if not ever_healthy and failures >= FIRST_TRIES:
                why = failure(child, f"{how}, {FIRST_TRIES} times")
                if not child.spec.optional:
                    raise StartFailed(why)
                self.say(f"{why}\nGoing on without it.")
                child.settled.set()
                return
            pause = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]
            self.say(f"{name} {how}; starting it again in {pause:g} s (log: {child.log.path})")
            await asyncio.sleep(pause)

    async def _run_once(self, child: Child) -> None:
        await child.start()
        status = await child.wait()
        if status != 0 and not self._stop.is_set():
            raise StartFailed(failure(child, describe(status, 0)))
        child.healthy.set()
        child.settled.set()

    async def _keep_house(self) -> None:
        """Orphans of a crashed process are adopted here: nobody owns them, so they are ended."""
        told: dict[int, float] = {}
        while self.alone:
            await asyncio.sleep(0.5)
            own = {c.process.pid for c in self.children.values() if c.process is not None}
            reap_adopted(own)
            orphans = direct_children(os.getpid()) - own
            told = {pid: told.get(pid, time.monotonic()) for pid in orphans}
            for pid, since in told.items():
                late = time.monotonic() - since > ORPHAN_SECONDS
                kill_quietly(pid, signal.SIGKILL if late else signal.SIGTERM)

    async def _take_down(self) -> None:
        """In reverse order of `after`, each when those that need it are gone, or are too slow."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        gone = {name: asyncio.Event() for name in self.children}

        async def stop_one(child: Child) -> None:
            for other in self.children.values():
                if child.spec.name in other.spec.after:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(gone[other.spec.name].wait(), STAGGER_SECONDS)
            if child.process is not None:
                child.terminate()
                await child.wait()
            gone[child.spec.name].set()

        stops = [asyncio.create_task(stop_one(child)) for child in self.children.values()]
        if stops:
            _, late = await asyncio.wait(stops, timeout=STOP_SECONDS)
            if late:
                names = [name for name, event in gone.items() if not event.is_set()]
                self.say(f"Not gone after {STOP_SECONDS:g} s, ended by force: {', '.join(names)}")
                self._kill_everything()
                await asyncio.wait(late, timeout=1.0)
        self._kill_everything()  # what a process started and left behind
        if self.alone:
            reap_adopted(set())
        for child in self.children.values():
            await child.close()
        await asyncio.sleep(0)  # lets the loop close the transports of the last to end

    def _kill_everything(self) -> None:
        own = [child.pid for child in self.children.values() if child.pid is not None]
        for root in [os.getpid()] if self.alone else own:
            for pid in descendants(root):
                kill_quietly(pid, signal.SIGKILL)
        for pid in own:
            kill_quietly(pid, signal.SIGKILL)


def direct_children(root: int) -> set[int]:
    return {pid for pid, parent in parents().items() if parent == root}


def failure(child: Child, how: str) -> str:
    """What failed, its last lines, and where the rest is."""
    shown = "".join(f"\n    {line}" for line in list(child.log.tail)[-8:])
    return (
        f"{child.spec.name} {how}: it can't be started. Its last lines:{shown or ' none.'}\n"
        f"The whole log: {child.log.path}"
    )


def describe(status: int | None, start_seconds: float) -> str:
    if status is None:
        return f"was not healthy within {start_seconds:g} s"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


def write_times(config: Config, supervisor: Supervisor, *, prepared_s: float | None) -> None:
    """`up.json`: seconds from the supervisor's start until each process was healthy."""
    ready = supervisor.ready_s
    content = {
        "address": config.address,
        "started_at": round(supervisor.started, 3),
        "ready_s": dict(sorted(ready.items(), key=lambda item: item[1])),
        "site_s": ready.get("web"),
        "all_s": max(ready.values(), default=None),
        "prepared_s": prepared_s,
        "python": sys.version.split()[0],
    }
    path = config.state_dir / "up.json"
    draft = path.with_suffix(".json.new")
    draft.write_text(json.dumps(content, indent=2) + "\n")
    draft.replace(path)
