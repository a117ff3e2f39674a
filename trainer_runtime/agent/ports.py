"""Ports that are held from the moment they are chosen, and who is connected to one."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path


class HeldPort:
    """A port bound, not listening, until `close`. Nobody else is given it meanwhile, while who is
    meant (TCPStore, asyncio: both set SO_REUSEADDR) can bind it again and listen, also repeatedly.
    Raises OSError naming the address if it can't be bound."""

    def __init__(self, host: str, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise OSError(error.errno, f"{host}:{port}: {error.strerror}") from None
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


def connected(group: int, port: int) -> bool:
    """Whether a process of process group `group` has an established TCP connection to `port`."""
    ours = _sockets_to(port)
    if not ours:
        return False
    return any(ours & _open_sockets(pid) for pid in members(group))


def members(group: int) -> list[Path]:
    """/proc folders of the processes of a group."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                # pid (comm) state ppid pgrp: comm may hold anything, also spaces and brackets.
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    found.append(folder)
    return found


def _sockets_to(port: int) -> set[str]:
    inodes = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/net", name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "01" and int(fields[2].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return inodes


def _open_sockets(folder: Path) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for each in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(each.readlink())
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found
