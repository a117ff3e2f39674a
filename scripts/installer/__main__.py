"""python -m scripts.installer up|test|lint|bench|bench-engine|bench-trainer|setup [arguments]

up: set up, then run Concertina here. test: set up with the test tools, then every check and test.
lint: the checks before the tests. bench: measure. setup: set up with the test tools only.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from controlplane.supervisor.stamps import Stamps
from scripts.installer import problems
from scripts.installer.problems import Problem
from scripts.installer.run import Runner
from scripts.installer.steps import GOALS, PYTHON, ROOT, skipped

COMMANDS = {
    "up": ("up", [str(PYTHON), "-m", "controlplane.supervisor"]),
    "test": ("test", [str(PYTHON), "-m", "scripts.check"]),
    "lint": ("test", [str(PYTHON), "-m", "scripts.check", "--lint"]),
    "bench": ("test", [str(PYTHON), "-m", "scripts.bench"]),
    "bench-engine": ("test", [str(PYTHON), "-m", "scripts.bench_engine"]),
    "bench-trainer": ("test", [str(PYTHON), "-m", "tests.benchmarks.trainer"]),
    "setup": ("test", None),
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__)
        return 2
    goal, command = COMMANDS[arguments[0]]
    # SIGTERM ends like Ctrl-C, so that the steps' processes are ended with us.
    signal.signal(signal.SIGTERM, lambda *_: raise_interrupt())
    try:
        if arguments[0] == "up":
            refuse_if_it_cannot_start(arguments[1:])
        set_up(goal)
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to go on.", file=sys.stderr)
        return 130
    if command is None:
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execv(command[0], command + arguments[1:])


def set_up(goal: str) -> None:
    cache = ROOT / ".cache"
    runner = Runner(Stamps(cache / "stamps"), state_dir() / "log")
    steps = GOALS[goal]()
    due = runner.due(steps)
    if due:
        problems.check_disk(ROOT, goal, installed="packages" not in due and "npm" not in due)
        if "venv" in due:
            problems.check_python_venv()
        if {"npm", "dashboard"} & set(due):
            problems.check_node()
        cache.mkdir(exist_ok=True)
        with (cache / "setup.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Problem(
                    "Another set-up runs in this folder: wait until it has ended, then try again."
                ) from None
            seconds = runner.run(steps)
        if seconds is not None:
            print(f"Set up in {seconds:.0f} s.", flush=True)
    if goal == "test":
        for note in skipped():
            print(note, flush=True)


def refuse_if_it_cannot_start(arguments: list[str]) -> None:
    """A taken port or a running supervisor is told now, not after a minute of installing."""
    from controlplane.supervisor import preflight
    from controlplane.supervisor.config import BadSetting, from_environment

    if any(a in ("-h", "--help") for a in arguments):
        return
    try:
        preflight.check(from_environment(arguments))
    except (preflight.CannotStart, BadSetting) as error:
        raise Problem(str(error)) from None


def state_dir() -> Path:
    return Path(os.environ.get("CONCERTINA_STATE_DIR") or ROOT / ".run").resolve()


def raise_interrupt() -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
