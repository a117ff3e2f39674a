"""What can be wrong with a machine, each as one sentence that names the remedy."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

NODE_MAJOR = 20
FREE_GIB = {"up": 3.0, "test": 4.0}  # measured: 1.4 GiB of Python, 0.4 of node, the rest is scratch


class Problem(Exception):
    """One clear sentence for the person at the terminal; ends the run without a traceback."""


def check_python_venv() -> None:
    """Debian splits `venv` and `ensurepip` from Python: without them no environment can be made."""
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Problem(
            "Python's venv module is missing: install it (on Debian 12: "
            "apt-get install python3.11-venv)."
        )


def check_node() -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Problem(
                f"{program} is missing: install Node.js {NODE_MAJOR} or newer with npm and put it "
                "on PATH; it builds the dashboard."
            )
    answer = subprocess.run(["node", "--version"], capture_output=True, text=True)
    version = answer.stdout.strip()
    try:
        major = int(version.lstrip("v").split(".")[0])
    except ValueError:
        raise Problem(f"`node --version` answered {version!r}: reinstall Node.js.") from None
    if major < NODE_MAJOR:
        raise Problem(f"Node.js {version} is too old: install version {NODE_MAJOR} or newer.")


def check_disk(folder: Path, goal: str, *, installed: bool) -> None:
    """Enough free space, and a write that succeeds: quotas show only there."""
    needed = 0.2 if installed else FREE_GIB[goal]
    free = shutil.disk_usage(folder).free / 2**30
    if free < needed:
        raise Problem(
            f"The disk that holds {folder} has {free:.1f} GiB free and {needed:.1f} are needed: "
            "free some space, or clone to another disk."
        )
    probe = folder / f".write-probe-{os.getpid()}"
    try:
        probe.write_bytes(b"\0" * 2**20)
    except OSError as error:
        raise Problem(
            f"{folder} can't be written to ({error.strerror}): make it writable for the user "
            f"{os.environ.get('USER') or os.geteuid()}, or free some space."
        ) from None
    finally:
        probe.unlink(missing_ok=True)
