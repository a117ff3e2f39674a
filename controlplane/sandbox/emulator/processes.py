"""Containers that are processes on this machine.

Each has a process group of its own and dies with the sandbox (PR_SET_PDEATHSIG); what its own
children leave behind after a `kill -9` of the sandbox is found by an environment variable at the
next start. The exit is learnt from a pidfd in the loop: no thread, no polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.emulator.containers import CannotStart, Exit, uid_of
from controlplane.sandbox.emulator.environment import ConfigMissing, command_line, environment
from controlplane.sandbox.objects import Object, name_of, namespace_of
from controlplane.sandbox.store import Store

logger = logging.getLogger("sandbox.processes")
MARK = "CONCERTINA_SANDBOX"  # in the environment of every process that we start
ROOT = Path(__file__).resolve().parents[3]  # the repository: where local processes start
_INHERITED = ("HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME", "TZ")
_LOG_LIMIT = 16 << 20
_LOG_FOLDERS_KEPT = 100
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    pidfd: int
    log: Path
    ended: Exit | None = None
    killer: asyncio.Task[None] | None = None


class ProcessRuntime:
    """See `containers.Runtime`. `changed(uid)` is called when a process of the pod ends."""

    def __init__(
        self, store: Store, clock: Clock, folder: Path, changed: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._logs = folder / "logs"
        self._mark = str(folder.resolve())
        self._changed = changed
        self._processes: dict[tuple[str, str], _Process] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def start(self, pod: Object, container: Object, restart: int) -> None:
        """Start the container's command; CannotStart says what is missing."""
        try:
            values = environment(self._store, pod, container)
        except ConfigMissing as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from error
        words = command_line(container, values)
        if not words:
            raise CannotStart(
                "CreateContainerError",
                "no command specified: a local process needs `command`, its image isn't run",
            )
        env = self._base_environment() | values | {MARK: self._mark}
        program = shutil.which(words[0], path=env["PATH"])
        if program is None:
            raise CannotStart(
                "RunContainerError", f"exec: {words[0]!r}: not found on {env['PATH']}"
            )
        log = self._log_file(pod, container["name"], restart)
        with log.open("ab") as output:
            popen = _spawn([program, *words[1:]], env, container.get("workingDir"), output.fileno())
        process = _Process(popen, os.pidfd_open(popen.pid), log)
        key = (uid_of(pod), container["name"])
        self._processes[key] = process
        asyncio.get_running_loop().add_reader(process.pidfd, self._ended, key, process)

    def exit_of(self, uid: str, name: str) -> Exit | None:
        process = self._processes.get((uid, name))
        return process.ended if process else None

    def ends_at(self, uid: str, name: str) -> float | None:
        return None

    def is_running(self, uid: str, name: str) -> bool:
        process = self._processes.get((uid, name))
        return process is not None and process.ended is None

    def terminate(self, uid: str, name: str, grace: float) -> None:
        """SIGTERM to the group now, SIGKILL after `grace` seconds; once a container."""
        process = self._processes.get((uid, name))
        if process is None or process.ended is not None or process.killer is not None:
            return
        _signal_group(process, signal.SIGTERM)
        process.killer = asyncio.create_task(self._kill_later(process, grace))

    def signal(self, uid: str, number: signal.Signals) -> bool:
        """Send a signal to the pod's processes (KILL: to their groups); False if none runs."""
        running = [p for (owner, _), p in self._processes.items() if owner == uid and not p.ended]
        for process in running:
            if number is signal.SIGKILL:
                _signal_group(process, number)
            else:
                process.popen.send_signal(number)
        return bool(running)

    def forget(self, uid: str) -> None:
        """Kill what still runs of a pod that is gone."""
        for key in [key for key in self._processes if key[0] == uid]:
            process = self._processes.pop(key)
            if process.ended is None:
                _signal_group(process, signal.SIGKILL)
                task = asyncio.create_task(self._wait(process))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def log_path(self, pod: Object, container: str) -> Path | None:
        """The log of the container's newest run, None while it has none."""
        folder = self._log_folder(pod) / container
        if not folder.is_dir():
            return None
        files = sorted(folder.glob("*.log"), key=lambda path: int(path.stem))
        return files[-1] if files else None

    def trim_logs(self) -> None:
        """Empty a log that has grown too large (writers append, so they go on at its start)."""
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                if process.ended is None and process.log.stat().st_size > _LOG_LIMIT:
                    os.truncate(process.log, 0)

    async def close(self, seconds: float = 1.5) -> None:
        """End every process: SIGTERM, and what is left after `seconds` SIGKILL."""
        running = [p for p in self._processes.values() if p.ended is None]
        for process in running:
            _signal_group(process, signal.SIGTERM)
        if running or self._closing:
            waits = [asyncio.create_task(self._wait(process)) for process in running]
            await asyncio.wait([*waits, *self._closing], timeout=seconds)
            for process in running:
                _signal_group(process, signal.SIGKILL)
            await asyncio.gather(*waits)
        for process in self._processes.values():
            if process.killer is not None:
                process.killer.cancel()

    def sweep(self) -> int:
        """Kill processes that an earlier sandbox on this folder left; how many there were."""
        mark = f"{MARK}={self._mark}".encode()
        found = 0
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found += 1
        return found

    # -- inside --------------------------------------------------------------------------------

    def _ended(self, key: tuple[str, str], process: _Process) -> None:
        if process.ended is not None:
            return
        code = process.popen.wait()
        asyncio.get_running_loop().remove_reader(process.pidfd)
        os.close(process.pidfd)
        process.ended = Exit(128 - code if code < 0 else code, self._clock.now())
        if process.killer is not None:
            process.killer.cancel()
        # what it started and didn't end goes with it, as with a container
        _signal_group(process, signal.SIGKILL)
        self._changed(key[0])

    async def _wait(self, process: _Process) -> None:
        while process.ended is None:
            await asyncio.sleep(0.02)

    async def _kill_later(self, process: _Process, grace: float) -> None:
        await self._clock.sleep(grace)
        _signal_group(process, signal.SIGKILL)

    def _base_environment(self) -> dict[str, str]:
        env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        here = str(Path(sys.executable).parent)
        env["PATH"] = f"{here}:{os.environ.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
        env["PYTHONUNBUFFERED"] = "1"
        return env

    def _log_folder(self, pod: Object) -> Path:
        return self._logs / f"{namespace_of(pod)}_{name_of(pod)}_{uid_of(pod)}"

    def _log_file(self, pod: Object, container: str, restart: int) -> Path:
        folder = self._log_folder(pod) / container
        if not folder.is_dir():
            folder.mkdir(parents=True)
            self._remove_old_logs()
        return folder / f"{restart}.log"

    def _remove_old_logs(self) -> None:
        folders = sorted(self._logs.iterdir(), key=lambda path: path.stat().st_mtime)
        for folder in folders[: max(len(folders) - _LOG_FOLDERS_KEPT, 0)]:
            shutil.rmtree(folder, ignore_errors=True)


def _spawn(
    words: list[str], env: dict[str, str], folder: str | None, output: int
) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    try:
        return subprocess.Popen(
            words,
            env=env,
            cwd=folder or ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        raise CannotStart("RunContainerError", f"exec {words[0]}: {error}") from error


def _signal_group(process: _Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.popen.pid, number)
