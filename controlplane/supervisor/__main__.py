"""python -m controlplane.supervisor: run Concertina on this machine, in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from controlplane.supervisor import preflight
from controlplane.supervisor.config import (
    DEMO_USER,
    BadSetting,
    Config,
    child_environment,
    from_environment,
)
from controlplane.supervisor.due import prepared_for, stamps
from controlplane.supervisor.guard import guarded
from controlplane.supervisor.preflight import CannotStart
from controlplane.supervisor.specs import processes
from controlplane.supervisor.supervisor import StartFailed, Supervisor, write_times


def main(arguments: list[str]) -> int:
    started = time.time()
    try:
        config = from_environment(arguments)
        preflight.check_owner(config)
        preflight.check_state_dir(config)
        with preflight.ownership(config):
            preflight.check_ports(config)
            return guarded(lambda: supervise(config, started))
    except (CannotStart, BadSetting) as error:
        print(error, file=sys.stderr)
        return 1


def supervise(config: Config, started: float) -> int:
    try:
        asyncio.run(_supervise(config, started))
    except StartFailed as error:
        say(f"\n{error}")
        return 1
    say("Stopped.")
    return 0


async def _supervise(config: Config, started: float) -> None:
    # Taken before anything is prepared: what the stamp names is what the preparation read.
    digest = prepared_for(config)
    environment = child_environment(config)
    specs = processes(config)
    supervisor = Supervisor(config, specs, environment, say=say, started=started)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, supervisor.request_stop)
    preparing = any(spec.name == "prepare" for spec in specs)
    say(f"Starting {', '.join(spec.name for spec in specs)} ...")

    def on_healthy(name: str) -> None:
        seconds = supervisor.ready_s[name]
        if name == "prepare":
            stamps(config).write("prepared", digest)
            say(f"  {seconds:5.1f} s  database and static files prepared")
        elif name == "web":
            say(f"  {seconds:5.1f} s  web: the site answers on {config.address}")
        else:
            say(f"  {seconds:5.1f} s  {name}")

    def on_up() -> None:
        prepared = supervisor.ready_s.get("prepare") if preparing else None
        write_times(config, supervisor, prepared_s=prepared)
        say(greeting(config, environment["CONCERTINA_DEMO_PASSWORD"]))

    stale = config.state_dir / "up.json"
    stale.unlink(missing_ok=True)
    await supervisor.run(on_healthy, on_up)


def greeting(config: Config, password: str) -> str:
    lines = [
        "",
        f"Concertina is up: {config.address}",
        f"Sign in as {DEMO_USER} with the password {password}",
        f"kubectl --kubeconfig {config.kubeconfig} get nodes,pods,jobs",
        f"Logs: {config.logs}   Ctrl-C stops everything.",
    ]
    return "\n".join(lines)


def say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError:  # the terminal or the pipe is gone: the logs still have it all
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
