"""Nothing stays behind, however the supervisor ends: a parent that only waits, and then cleans up.

The two processes cover each other. When the supervisor dies (even of SIGKILL), everything under
it becomes the guard's (a subreaper): the guard ends it and then itself. When the guard dies, the
kernel tells the supervisor by SIGTERM (PR_SET_PDEATHSIG), which stops in order. Signals, also a
terminal's, reach the guard alone, and it passes them on, so one Ctrl-C is one signal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from controlplane.supervisor.posix import (
    become_subreaper,
    descendants,
    die_with_parent,
    kill_quietly,
    reap_adopted,
)

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRACE_SECONDS = 3.5


def guarded(run: Callable[[], int]) -> int:
    """Run `run` in a child process; returns its exit status once nothing is left under it."""
    become_subreaper()
    sys.stdout.flush()
    # Blocked and waited for, not handled: none is lost before the fork or between two waits.
    awaited = {*PASSED_ON, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    tie_to_parent = die_with_parent(signal.SIGTERM)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        tie_to_parent()
        become_subreaper()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
        status = 1
        try:
            status = run()
            sys.stdout.flush()
        finally:
            os._exit(status)
    ended = 0
    while not ended:
        received = signal.sigwait(awaited)
        if received is not signal.SIGCHLD:
            kill_quietly(child, received)
        ended, status = os.waitpid(child, os.WNOHANG)
    end_everything_below()
    return os.waitstatus_to_exitcode(status)


def end_everything_below() -> None:
    """What survived the supervisor got SIGTERM when it died; after a grace, SIGKILL."""
    me = os.getpid()
    deadline = time.monotonic() + GRACE_SECONDS
    reap_adopted(set())
    while below := descendants(me):
        signum = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        for pid in below:
            kill_quietly(pid, signum)
        time.sleep(0.1)
        reap_adopted(set())
