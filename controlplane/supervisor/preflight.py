"""What must hold before anything is started; each refusal is one sentence with its remedy."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from controlplane.supervisor.config import Config
from controlplane.supervisor.posix import port_is_free

FREE_MIB = 200  # a day of samples, the append-only file and rotated logs


class CannotStart(Exception):
    """The sentence that the person at the terminal reads."""


def check(config: Config) -> None:
    """Raise CannotStart where a start would fail; leaves nothing behind."""
    check_owner(config)
    check_state_dir(config)
    check_ports(config)


def check_owner(config: Config) -> None:
    path = config.state_dir / "supervisor.lock"
    if not path.exists():
        return
    try:
        with path.open("r+") as file:
            take(file, config)
    except PermissionError:
        raise CannotStart(
            f"{path} belongs to another user: run as that user, or give another --state-dir."
        ) from None


def check_state_dir(config: Config) -> None:
    probe = config.state_dir / f".write-probe-{os.getpid()}"
    try:
        config.state_dir.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"\0" * 2**16)
    except OSError as error:
        raise CannotStart(
            f"The state folder {config.state_dir} can't be written to ({error.strerror}): make it "
            "writable, free some space, or name another with --state-dir."
        ) from None
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    free = shutil.disk_usage(config.state_dir).free / 2**20
    if free < FREE_MIB:
        raise CannotStart(
            f"The disk that holds {config.state_dir} has {free:.0f} MiB free and {FREE_MIB} are "
            "needed: free some space, or name a folder on another disk with --state-dir."
        )


def check_ports(config: Config) -> None:
    chosen: dict[int, str] = {}
    for variable, (who, port) in config.ports().items():
        if port in chosen:
            raise CannotStart(f"{variable} and {chosen[port]} are both {port}: give each its own.")
        chosen[port] = variable
        if not port_is_free(port):
            raise CannotStart(
                f"Port {port}, which {who} listens on, is taken by another program: stop that one, "
                f"or choose another port with {variable}=<port> in the environment."
            )


@contextmanager
def ownership(config: Config) -> Iterator[None]:
    """Hold the state folder: one supervisor at a time. Released by the kernel however it ends."""
    config.state_dir.mkdir(parents=True, exist_ok=True)
    with (config.state_dir / "supervisor.lock").open("a+") as file:
        take(file, config)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def take(file: IO[str], config: Config) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        raise CannotStart(
            f"Concertina already runs on {config.state_dir} (process {owner}): stop that one with "
            "Ctrl-C or `kill`, or name another folder with --state-dir and other ports."
        ) from None
