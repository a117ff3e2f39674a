"""The supervisor over stand-in processes, as a program.

`python -m tests.unit.supervisor.fake_run FOLDER KIND`, KIND being the second one's mode. Each
stand-in writes its process id and events into FOLDER: a test sees order, and what is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from controlplane.supervisor.config import Config
from controlplane.supervisor.guard import guarded
from controlplane.supervisor.health import FreshFile
from controlplane.supervisor.specs import ProcessSpec
from controlplane.supervisor.supervisor import StartFailed, Supervisor

# argv: folder, name, mode
STAND_IN = """
import os, pathlib, signal, subprocess, sys, time
folder, name, mode = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def note(what):
    with (folder / "events").open("a") as file:
        file.write(f"{name} {what}\\n")
def note_pid(pid):
    with (folder / "pids").open("a") as file:
        file.write(f"{pid}\\n")
def stop(*_):
    note("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in mode else stop)
note_pid(os.getpid())
if "family" in mode:  # a grandchild in a session of its own, deaf to SIGTERM
    code = ("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            "print('deaf', flush=True); time.sleep(600)")
    command = [sys.executable, "-c", code]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
    note_pid(child.pid)
note("started")
print(f"{name} says hello", flush=True)
if "broken" in mode:
    sys.exit("no such thing as " + name)
if "sick" not in mode:
    (folder / f"{name}.ready").write_text("")
if "once" in mode:
    sys.exit(0)
time.sleep(600)
"""


def spec(folder: Path, name: str, mode: str = "", after: tuple[str, ...] = ()) -> ProcessSpec:
    return ProcessSpec(
        name,
        (sys.executable, "-c", STAND_IN, str(folder), name, mode),
        FreshFile(folder / f"{name}.ready", age_s=600),
        after=after,
        start_seconds=1.0 if "sick" in mode else 20.0,
        once="once" in mode,
        optional="optional" in mode,
    )


def make_config(folder: Path, **changes: object) -> Config:
    values: dict[str, object] = {
        "state_dir": folder,
        "web_port": 8000,
        "sandbox_port": 8001,
        "redis_port": 8002,
        "redis_url": None,
        "demo": True,
        "verbose": False,
    }
    return Config(**{**values, **changes})  # type: ignore[arg-type]


def make_supervisor(folder: Path, specs: list[ProcessSpec], said: list[str]) -> Supervisor:
    return Supervisor(
        make_config(folder),
        specs,
        {"PATH": "/usr/bin:/bin"},
        say=said.append,
        started=time.time(),
        folder=folder,
        alone=False,
    )


def main() -> int:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    chain = [spec(folder, "store"), spec(folder, "site", kind, after=("store",))]

    async def run() -> None:
        supervisor = Supervisor(
            make_config(folder),
            chain,
            {"PATH": "/usr/bin:/bin"},
            say=lambda line: print(line, flush=True),
            started=time.time(),
            folder=folder,
        )
        for signum in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signum, supervisor.request_stop)
        await supervisor.run(lambda name: None, lambda: print("UP", flush=True))

    def guarded_run() -> int:
        (folder / "inner").write_text(str(os.getpid()))
        try:
            asyncio.run(run())
        except StartFailed as error:
            print(error)
            return 1
        return 0

    return guarded(guarded_run)


if __name__ == "__main__":
    sys.exit(main())
