"""The process that forks all others of an agent, after it has imported what they all need.

    python -m trainer_runtime.agent.nursery FD AGENT_PID PRELOAD

For each request on the unix socket FD (one byte, and three descriptors: control socket, stdout,
stderr) it forks a process that waits for its task. The fork is double, and the agent is a child
subreaper: the agent becomes the parent, so that it sees exit codes and no rank depends on the
nursery. Nothing here may start a thread or run a backward pass: forks of threads don't work.
When the agent dies, each process dies by PR_SET_PDEATHSIG, and the nursery kills their groups, so
that the children of ranks (loader workers) go too.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_MAX_TASK = 1 << 20


def die_with_parent(parent: int) -> bool:
    """SIGKILL for this process when `parent` ends; False if it has ended already, or if this
    process didn't become its child within 5 s."""
    until = time.monotonic() + 5
    while os.getppid() != parent:
        if time.monotonic() > until:
            return False
        os.sched_yield()  # the forking process between us is about to end
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def preload(names: list[str]) -> None:
    """Import modules. With torch come what the first optimizer would import (0.9 s)."""
    for name in names:
        importlib.import_module(name)
    if "torch" in sys.modules:
        import torch
        import torch.distributed
        import torch.optim.lr_scheduler

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # else the step starts OpenMP's
        weight = torch.nn.Parameter(torch.zeros(1))
        weight.grad = torch.zeros(1)
        torch.optim.AdamW([weight]).step()
        torch.set_num_threads(threads)
    running = len(list(Path("/proc/self/task").iterdir()))
    if running > 1:
        raise RuntimeError(
            f"--preload: the modules started {running - 1} threads, which forks don't inherit; "
            "leave out those that do"
        )


def serve(channel: socket.socket, agent: int) -> socket.socket | None:
    """Fork on request. In a forked process returns its control socket; None when the agent ends."""
    groups: set[int] = set()
    while True:
        select.select([channel], [], [])
        data, descriptors, _, _ = socket.recv_fds(channel, 1, 3)
        if not data:
            for group in groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
            return None
        middle = os.fork()
        if middle == 0:
            os.setpgid(0, 0)
            if os.fork():
                os._exit(0)
            channel.close()
            return _settle(descriptors, agent)
        for each in descriptors:
            os.close(each)
        os.waitpid(middle, 0)
        groups = {each for each in groups if _alive(each)} | {middle}


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _settle(descriptors: list[int], agent: int) -> socket.socket:
    control, out, err = descriptors
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(old, new)
        os.close(old)
    if not die_with_parent(agent):
        os._exit(0)
    mine = socket.socket(fileno=control)
    mine.sendall(json.dumps({"pid": os.getpid(), "group": os.getpgrp()}).encode() + b"\n")
    return mine


def perform(control: socket.socket) -> None:
    """Wait for the task, then be it: {argv, module, exec, environment}. EOF ends the standby."""
    with control.makefile("rb") as lines:
        line = lines.readline(_MAX_TASK)
    control.close()
    if not line.endswith(b"\n"):
        os._exit(0)
    task = json.loads(line)
    os.environ.update(task["environment"])
    if task["exec"]:
        os.execvp(task["argv"][0], task["argv"])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    sys.argv = task["argv"]
    try:
        if task["module"]:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(sys.argv[0]).resolve().parent)  # it was the working directory
            runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception as error:
        write_error(error)
        raise


def write_error(error: Exception) -> None:
    """As torch.distributed.elastic's `record` writes it, unless the script did so itself."""
    path = Path(os.environ.get("TORCHELASTIC_ERROR_FILE") or os.devnull)
    if path.name == "null" or path.exists():
        return
    extra: dict[str, Any] = {
        "py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))
    }  # fmt: skip
    said = {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}
    with contextlib.suppress(OSError):
        path.write_text(json.dumps({"message": said}))


def main() -> None:
    descriptor, agent, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    # Ctrl-C and the agent's own SIGTERM are the agent's business.
    os.setpgid(0, 0)
    channel = socket.socket(fileno=descriptor)
    preload([name for name in names.split(",") if name])
    channel.sendall(b"r")
    control = serve(channel, agent)
    if control is not None:
        perform(control)


if __name__ == "__main__":
    main()
