"""`python -m controlplane.sandbox.demo`: life on the sandbox cluster, until a signal."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kubernetes.config.config_exception import ConfigException

from controlplane.sandbox.demo.loops import (
    Options,
    Research,
    SimulatedTrainers,
    create_first,
    create_jobs,
    follow_the_day,
)
from controlplane.sandbox.demo.manifests import REAL_JOB
from controlplane.sandbox.demo.objects import Objects, PodWatch, Unreachable

logger = logging.getLogger("demo")
_TICK = 0.5
_DAY_SECONDS, _JOBS_SECONDS = 2.0, 15.0
_WAIT_SECONDS = 2.0


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="controlplane.sandbox.demo", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument(
        "--speed", type=float, default=1.0, help="days are ten minutes / SPEED long (default 1)"
    )
    parser.add_argument("--seed", type=int, default=7, help="of noise and of what arrives when")
    parser.add_argument(
        "--authority-port",
        type=int,
        default=int(os.environ.get("CONCERTINA_AUTHORITY_PORT") or 8003),
        help="port of the real job's membership authority (or CONCERTINA_AUTHORITY_PORT)",
    )
    options = parser.parse_args(argv)
    if not 0.01 <= options.speed <= 100:
        parser.error(f"--speed {options.speed:g}: give a number from 0.01 to 100")
    if not 1 <= options.authority_port <= 65535:
        parser.error(f"--authority-port {options.authority_port}: give a port from 1 to 65535")
    return options


class Every:
    """Calls a step at most once in `seconds`."""

    def __init__(self, seconds: float, step: Callable[[float], None]) -> None:
        self._seconds = seconds
        self._step = step
        self._last = float("-inf")

    def __call__(self, now: float) -> None:
        if now - self._last >= self._seconds:
            self._last = now
            self._step(now)


def run(objects: Objects, options: Options, stopped: threading.Event) -> None:
    """Live until `stopped`. While the cluster can't be reached, wait and go on."""
    watch = PodWatch(objects)
    trainers, research = SimulatedTrainers(objects, watch, options), Research(options)
    steps: list[Callable[[float], None]] = [
        Every(_DAY_SECONDS, lambda now: follow_the_day(objects, options, now)),
        Every(_JOBS_SECONDS, lambda now: create_jobs(objects, options)),
        lambda now: research.step(objects, now),
        trainers.step,
    ]
    created = False
    silent = False
    threading.Thread(target=watch.run, name="pods", daemon=True).start()
    while not stopped.wait(_TICK):
        try:
            if not created:
                create_first(objects, options, time.time())
                created = True
            for step in steps:
                step(time.time())
            silent = False
        except Unreachable as error:
            if not silent:
                logger.warning("the cluster: %s; trying again", _short(error))
            silent = True
            stopped.wait(_WAIT_SECONDS)
    watch.stop()
    trainers.stop()
    try:
        trainers.save()
    except Unreachable as error:
        logger.info("progress wasn't saved: %s", _short(error))


def _short(error: BaseException) -> str:
    status = getattr(error, "status", None)
    return f"{status} {getattr(error, 'body', '')}"[:300] if status else str(error)[:300]


def main(argv: list[str] | None = None) -> int:
    """Run; 0 after a signal, 2 when the kubeconfig can't be used."""
    given = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("kubernetes").setLevel(logging.ERROR)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        objects = Objects(given.kubeconfig)
    except (ConfigException, OSError) as error:
        print(f"demo: {given.kubeconfig} can't be used: {error}", file=sys.stderr)
        return 2
    checkpoints = given.kubeconfig.resolve().parent / "checkpoints" / REAL_JOB
    options = Options(given.speed, given.seed, "127.0.0.1", given.authority_port, str(checkpoints))
    run(objects, options, stopped)
    return 0


if __name__ == "__main__":
    sys.exit(main())
