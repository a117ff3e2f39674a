"""What the supervisor asks of Linux: children that die with it, and every process under it.

Standard library only. See prctl(2) and proc(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Loaded at import: after fork, only the call itself may run.
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signum: int = signal.SIGTERM) -> Callable[[], None]:
    """A `preexec_fn`: the kernel sends `signum` to the child when the thread that forks it ends.

    The setting survives exec, and is lost on a change of user, so it must come after that one
    (as in `subprocess`, which calls `preexec_fn` last).
    """
    parent = os.getpid()

    def set_in_child() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the call
            os.kill(os.getpid(), signum)

    return set_in_child


def become_subreaper() -> None:
    """Orphans below this process become its children, so that it can find and end them."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def parents() -> dict[int, int]:
    """The parent of every process that /proc shows, zombies left out."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:  # ended meanwhile
            continue
        # The name in parentheses may hold spaces and parentheses: what follows the last one counts.
        state, ppid = stat[stat.rindex(")") + 2 :].split()[:2]
        if state != "Z":
            found[int(entry.name)] = int(ppid)
    return found


def descendants(root: int) -> list[int]:
    """Process ids below `root`, parents before children."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def kill_quietly(pid: int, signum: int) -> None:
    """Send a signal to a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def reap_adopted(own: set[int]) -> None:
    """Collect ended children that this process adopted; those in `own` have another waiter."""
    me = os.getpid()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        state, ppid = stat[stat.rindex(")") + 2 :].split()[:2]
        if state == "Z" and int(ppid) == me:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(entry.name), os.WNOHANG)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now (ports in TIME_WAIT count as free)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now. Another may take it before you do: be ready to retry."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
