"""The agent of one node: keeps its replicas running, and leaves nothing behind.

One event loop. Deaths are seen by SIGCHLD; a parked standby takes a dead replica's place at once.
Exit codes: 0 all finished, or drained as asked; 70 a replica failed too often; 69 the authority's
name wasn't found; 78 what to preload can't be; 143 asked to end, and something had to be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import secrets
import shutil
import signal
import time
from typing import Any

from trainer_runtime.agent.budget import Budget
from trainer_runtime.agent.controlplane import ControlPlane, Line, node_name
from trainer_runtime.agent.errors import read_error, write_error
from trainer_runtime.agent.intents import Intents, how_it_ended
from trainer_runtime.agent.launch import Launcher, common_environment
from trainer_runtime.agent.logs import Console
from trainer_runtime.agent.options import AgentOptions
from trainer_runtime.agent.place import open_link, wait_for_name
from trainer_runtime.agent.ports import HeldPort
from trainer_runtime.agent.processes import Nursery, NurseryError, Process, Replica
from trainer_runtime.agentlink import AgentLink, last_word
from trainer_runtime.handshake import Secret
from trainer_runtime.protocol import parse_address

OK, UNAVAILABLE, GAVE_UP, MISCONFIGURED, TERMINATED = 0, 69, 70, 78, 143
_PR_SET_CHILD_SUBREAPER = 36
_REFILL_S = 0.5  # a replacement's start comes first
_LOOK_S = 0.5
_STANDBY, _AUTHORITY, _NURSERY = -1, -2, -3  # the budget's slots besides replicas
_INNER_RESTARTS = 5  # of standbys, the authority and the nursery, in the window


class Agent:
    """`run` gives the exit code. Used in one event loop, in the main thread."""

    def __init__(self, options: AgentOptions, console: Console) -> None:
        self.options, self.console = options, console
        self.slots: dict[int, Replica] = {}
        self.standbys: list[Replica] = []
        self.replicas: list[Replica] = []  # all that have a process left
        self.reason = ""  # why the agent gave up
        self.code = OK
        self.stopping = False
        self.elastic: bool | None = None
        self._restarts: dict[int, int] = {}
        self._budget = Budget(options.max_restarts, options.restart_window)
        self._inner = Budget(_INNER_RESTARTS, options.restart_window)
        self._over = asyncio.Event()
        self._finished = False
        self._failure: tuple[Replica, Process] | None = None
        self._authority: Process | None = None
        self._held: HeldPort | None = None
        self._plane: ControlPlane | None = None
        self._link: AgentLink | None = None
        self._printing: list[Process] = []

    async def run(self) -> int:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._asked_to_stop)
        address = self._place()
        self.nursery = Nursery(self.options.preload, common_environment(self.options, address))
        self.launcher = Launcher(self.options, self.nursery, self.console)
        self._connect_control_plane()
        try:
            await self._start(address)
            await self._over.wait()
        finally:
            await self._clean_up()
        self._report()
        return self.code

    def log(self, text: str) -> None:
        self.console.write(2, f"[agent] {text}\n".encode())

    # ---- start -----------------------------------------------------------------------------

    def _place(self) -> str:
        """The authority's address for the ranks; its port is held from here on if it is ours."""
        host = self.options.host_authority
        if host is not None:
            self._held = HeldPort(*host)
        address = self.options.authority or f"127.0.0.1:{self._held.port if self._held else 0}"
        if not self.options.authority and Secret.from_env() is None:
            # Only this agent's own processes have business there.
            os.environ["CONCERTINA_SECRET"] = secrets.token_hex(16)
        self._ports = [parse_address(each)[1] for each in address.split(",")]
        return address

    async def _start(self, address: str) -> None:
        try:
            await asyncio.to_thread(self.nursery.start)
        except NurseryError as error:
            self._give_up(str(error), MISCONFIGURED)
            return
        if self._held is None and not await self._found(address):
            return
        if self._held is not None and not self.stopping:
            self._start_authority()
        if not self.stopping:
            self._link = open_link(self.options, address, self._loop, self.expired, self.log)
            self.grow(self.options.replicas)
            self._refill()
        self._end_if_empty()

    async def _found(self, address: str) -> bool:
        wait = self.options.dns_timeout
        if await wait_for_name(address, wait, lambda: self.stopping, self._over, self.log):
            return True
        if not self.stopping:
            self._give_up(f"authority {address}: no such host for {wait:g} s", UNAVAILABLE)
        return False

    def _start_authority(self) -> None:
        host = self.options.host_authority
        assert host is not None
        assert self._held is not None
        self._authority = self.launcher.authority(host[0], self._held.port, self._authority_ended)
        self._printing.append(self._authority)

    def _authority_ended(self, process: Process) -> None:
        self._printing.remove(process)
        self._authority = None
        if self.stopping or self._over.is_set():
            return
        how = how_it_ended(process.code or 0)
        if self._inner.spend(_AUTHORITY, time.monotonic()):
            self.log(f"authority ended ({how}): started again at the same port")
            self._start_authority()
        else:
            self._give_up(f"authority ended {_INNER_RESTARTS + 1} times, at last with {how}")

    def expired(self, name: str, cause: str) -> None:
        """The authority gave a replica up: it is killed, and its end brings the replacement."""
        replica = next((each for each in self.slots.values() if each.name == name), None)
        if replica is not None:
            replica.expired = f"given up by the authority: {cause}"
            replica.signal(signal.SIGKILL)

    def _connect_control_plane(self) -> None:
        options = self.options
        line = Line.from_env(os.environ, job=options.job, agent=options.agent, node=node_name())
        if line is None:
            return

        def hear(intent: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self.intents.take, intent)

        self._plane = ControlPlane(line, hear, self.log)
        self.intents = Intents(
            self, (options.low, options.replicas), options.elastic_timeout, self._plane.ack,
            self.log,
        )  # fmt: skip
        self._plane.start()
        self._elastic_until = time.monotonic() + options.elastic_timeout
        self._loop.call_later(_LOOK_S, self._look)

    # ---- replicas --------------------------------------------------------------------------

    def stable_name(self, replica: Replica) -> str:
        return f"{self.options.agent}.{replica.slot}"

    def running(self) -> list[Replica]:
        """By slot; those that were asked to leave aren't counted."""
        return [r for _, r in sorted(self.slots.items()) if not r.asked_to_leave]

    def took_part(self, replica: Replica) -> bool:
        return replica.took_part(self._ports)

    def grow(self, to: int) -> None:
        """Start replicas at free slots until `to` are there."""
        free = (n for n in range(self.options.replicas) if n not in self.slots)
        for _ in range(to - len(self.running())):
            slot = next(free, None)
            if slot is None:
                # Someone is still leaving: it makes room.
                slot = next(n for n, r in sorted(self.slots.items()) if r.asked_to_leave)
            self._start_in(slot)
        self._register()

    def leave(self, replica: Replica, seconds: float | None) -> None:
        """SIGTERM now; SIGKILL after `seconds` (the grace, if None)."""
        replica.asked_to_leave = True
        replica.signal(signal.SIGTERM)
        grace = self.options.grace if seconds is None else seconds
        self._loop.call_later(grace, self._kill, replica)

    def _kill(self, replica: Replica) -> None:
        if not replica.over:
            replica.killed = True
            self.log(f"{replica.name} hasn't left in time: killed")
            replica.signal(signal.SIGKILL)

    def _start_in(self, slot: int) -> Replica:
        ready = [each for each in self.standbys if each.ready] or self.standbys
        if ready:
            replica = ready[0]
            self.standbys.remove(replica)
        else:
            replica = self._new()
        replica.slot, self.slots[slot] = slot, replica
        if replica.warm:
            replica.wake()
        else:
            self.launcher.begin(replica, slot, self._restarts.get(slot, 0))
        replica.prefix(str(slot))
        if self._link is not None:
            self._link.started(replica.name)
        self._loop.call_later(_REFILL_S, self._refill)
        return replica

    def _new(self) -> Replica:
        replica = self.launcher.replica(self._ended)
        self.replicas.append(replica)
        self._printing += replica.processes
        for rank, process in enumerate(replica.processes):
            process.on_start = functools.partial(self._say_started, replica, rank)
        return replica

    def _say_started(self, replica: Replica, rank: int, process: Process) -> None:
        what = "warm standby" if replica.slot is None else f"replica {replica.slot}"
        self.log(f"pid {process.pid}: {what}, rank {rank}, {replica.name}")

    def _refill(self) -> None:
        if self.stopping or self._finished or self._over.is_set():
            return
        while len(self.standbys) < self.options.standbys:
            replica = self._new()
            self.standbys.append(replica)
            if self.options.warm_script:
                self.launcher.park(replica, len(self.standbys) % self.options.replicas)

    def _ended(self, process: Process) -> None:
        replica = next(each for each in self.replicas if process in each.processes)
        slot, code = replica.slot, process.code
        if slot is None:
            self._standby_ended(replica, process)
        elif code and not (replica.failed or replica.asked_to_leave or self.stopping):
            self._failed(replica, slot, process)
        elif code:
            replica.signal(signal.SIGKILL)  # an inner group is whole, or it is nothing
        if replica.over:
            self._gone(replica)

    def _standby_ended(self, replica: Replica, process: Process) -> None:
        replica.signal(signal.SIGKILL)
        if replica not in self.standbys:
            return
        self.standbys.remove(replica)
        if self.stopping or self._finished:
            return
        self.log(f"standby {replica.name} ended ({how_it_ended(process.code or 0)})")
        if self._inner.spend(_STANDBY, time.monotonic()):
            self._loop.call_later(_REFILL_S, self._refill)
        else:
            self.log("standbys end again and again: no more of them for now")

    def _failed(self, replica: Replica, slot: int, process: Process) -> None:
        """Replace it at once; what is left of it is killed."""
        how = replica.failed = replica.expired or how_it_ended(process.code or 0)
        rank = replica.processes.index(process)
        replica.signal(signal.SIGKILL)
        self._failure = (replica, process)
        del self.slots[slot]
        if not self._budget.spend(slot, process.ended_at):
            self._give_up(
                f"replica {slot} failed {self.options.max_restarts + 1} times in "
                f"{self.options.restart_window:g} s, at last {replica.name}, rank {rank}: {how}"
            )
            return
        self._restarts[slot] = self._restarts.get(slot, 0) + 1
        new = self._start_in(slot)
        kind = "warm standby" if new.warm else "standby" if new.ready else "new process"
        milliseconds = (time.monotonic() - process.ended_at) * 1000
        self.log(
            f"{replica.name}, rank {rank} lost ({how}): {new.name} takes its place ({kind}, "
            f"{milliseconds:.1f} ms)"
        )
        self._register()

    def _gone(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        replica.close()
        if replica.slot is None:
            return
        if replica.code and self._link is not None:
            # Certain now, of all its ranks: others may go on without it at once.
            last = last_word(self.launcher.epoch_file(replica.name))
            self._link.dead(replica.name, replica.code, last=last)
        if self.slots.get(replica.slot) is replica:
            del self.slots[replica.slot]
        if replica.code == 0 and not replica.asked_to_leave and not self._finished:
            self._finished = True  # a script that ended well: the others are about to
            self._drop_standbys()
        if self.stopping and self.code == OK and not self._left_well(replica):
            self.code = TERMINATED
        if self._plane is not None:
            self.intents.gone(replica)
        self._register()
        self._end_if_empty()

    def _left_well(self, replica: Replica) -> bool:
        """Finished, or drained. An elastic script ended by SIGTERM before its join lost nothing."""
        early = replica.code == -signal.SIGTERM and self.elastic and not replica.connected
        return not replica.killed and (replica.code == 0 or bool(replica.failed) or bool(early))

    def _end_if_empty(self) -> None:
        if not self.slots and not any(each.slot is not None for each in self.replicas):
            self._over.set()

    def _drop_standbys(self) -> None:
        for each in self.standbys:
            each.signal(signal.SIGKILL)
        self.standbys.clear()

    # ---- what comes from outside -----------------------------------------------------------

    def _reap(self) -> None:
        """All children that have ended, orphans of ranks among them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.nursery.pid:
                self._loop.create_task(self._nursery_ended())
                continue
            process = next((p for p in self._printing if p.pid == pid and p.code is None), None)
            if process is not None:
                process.ended(os.waitstatus_to_exitcode(status))

    async def _nursery_ended(self) -> None:
        if self.stopping or self._over.is_set() or not self.slots:
            return
        if not self._inner.spend(_NURSERY, time.monotonic()):
            self._give_up("the nursery ended again and again", MISCONFIGURED)
            return
        self.log("the nursery ended: started again")
        try:
            await asyncio.to_thread(self.nursery.start)
        except NurseryError as error:
            self._give_up(str(error), MISCONFIGURED)

    def _asked_to_stop(self) -> None:
        if self.stopping:
            self.log("asked again: kills what is left")
            for replica in list(self.replicas):
                self._kill(replica)
            return
        self.log(f"asked to end: drains its replicas, {self.options.grace:g} s at most")
        self._stop()

    def _stop(self) -> None:
        if self.elastic is None:
            self.elastic = self._any_took_part() or None
        self.stopping = True
        self._drop_standbys()
        for replica in self.running():
            self.leave(replica, None)
        self._end_if_empty()

    def _give_up(self, reason: str, code: int = GAVE_UP) -> None:
        if self.reason:
            return
        self.reason, self.code = reason, code
        self._stop()

    def _any_took_part(self) -> bool:
        return sum(self.took_part(each) for each in self.running()) > 0  # each is looked at

    def _look(self) -> None:
        """Whether the script takes part in elasticity, as the control plane wants to know."""
        if self._any_took_part():
            self.elastic = True
            self._register()
            return
        if self.elastic is None and time.monotonic() > self._elastic_until and self.slots:
            self.elastic = False
            self._register()
        self._loop.call_later(_LOOK_S, self._look)

    def _register(self) -> None:
        if self._plane is not None:
            replicas = [{"name": r.name, "ranks": self.options.ranks} for r in self.running()]
            self._plane.register(replicas, self.elastic)

    # ---- end -------------------------------------------------------------------------------

    async def _clean_up(self) -> None:
        """Nothing stays: processes, ports, files."""
        self._over.set()
        self._drop_standbys()
        if self._link is not None:
            await asyncio.to_thread(self._link.close)
        everything = [p for p in self._printing if p.code is None]
        for process in everything:
            process.signal(signal.SIGKILL)
        self.nursery.close()
        closed = [asyncio.ensure_future(p.closed.wait()) for p in self._printing]
        if closed:
            await asyncio.wait(closed, timeout=2.0)
        if self._held is not None:
            self._held.close()
        if self._plane is not None:
            await asyncio.to_thread(self._plane.close)

    def _report(self) -> None:
        if self.reason:
            extra: dict[str, Any] = {"exit_code": self.code}
            if self._failure is not None:
                replica, process = self._failure
                rank = replica.processes.index(process)
                extra |= {"replica": replica.name, "rank": rank, "rank_exit_code": process.code}
                extra |= read_error(self.launcher.error_file(replica.name, rank))
            write_error(self.options.error_file, self.reason, extra, self.log)
            self.log(f"gave up (exit code {self.code}): {self.reason}")
        shutil.rmtree(self.launcher.folder, ignore_errors=True)
