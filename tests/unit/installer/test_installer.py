"""The set-up: what is due, what is refused, and what a failure says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from controlplane.supervisor.stamps import Stamps
from scripts.installer import problems, run, steps
from scripts.installer.problems import Problem
from scripts.installer.run import Runner
from scripts.installer.steps import Step

ROOT = steps.ROOT
Usage = namedtuple("Usage", "total used free")


def make_step(
    name: str, code: str, folder: Path, needs: tuple[str, ...] = (), **more: object
) -> Step:
    values: dict[str, object] = {
        "title": name,
        "commands": ((sys.executable, "-c", code),),
        "inputs": (f"{name}.in",),
        "outputs": (),
        "needs": needs,
        "folder": folder,
        **more,
    }
    return Step(name, **values)  # type: ignore[arg-type]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(run, "ROOT", tmp_path)
    return Runner(Stamps(tmp_path / "stamps"), tmp_path / "log")


def note(word: str) -> str:
    return f"open('order', 'a').write('{word} ')"


def order(folder: Path) -> list[str]:
    path = folder / "order"
    return path.read_text().split() if path.exists() else []


def test_steps_run_after_those_they_need_and_once(tmp_path: Path, runner: Runner) -> None:
    chain = [
        make_step("c", note("c"), tmp_path, needs=("b",)),
        make_step("a", note("a"), tmp_path),
        make_step("b", note("b"), tmp_path, needs=("a",)),
    ]
    assert runner.run(chain) is not None
    assert order(tmp_path) == ["a", "b", "c"]
    assert runner.run(chain) is None
    assert order(tmp_path) == ["a", "b", "c"]


DUE = [
    # what changes, what is due then
    (lambda folder: None, []),
    (lambda folder: (folder / "a.in").write_text("2"), ["a", "b"]),
    (lambda folder: (folder / "b.in").write_text("2"), ["b"]),
    (lambda folder: (folder / "a.out").unlink(), ["a", "b"]),
    (lambda folder: shutil.rmtree(folder / "stamps"), ["a", "b"]),
]


@pytest.mark.parametrize(("change", "want"), DUE)
def test_what_is_due(tmp_path: Path, runner: Runner, change: object, want: list[str]) -> None:
    chain = [
        make_step("a", "open('a.out', 'w')", tmp_path, outputs=(tmp_path / "a.out",)),
        make_step("b", note("b"), tmp_path, needs=("a",)),
    ]
    for name in ("a.in", "b.in"):
        (tmp_path / name).write_text("1")
    runner.run(chain)
    change(tmp_path)  # type: ignore[operator]
    assert list(runner.due(chain)) == want


def test_a_failed_step_says_what_and_where_and_is_due_again(tmp_path: Path, runner: Runner) -> None:
    code = "print('working'); print('error: no such package'); print('bye'); raise SystemExit(7)"
    chain = [make_step("a", code, tmp_path), make_step("b", note("b"), tmp_path, needs=("a",))]
    with pytest.raises(Problem) as caught:
        runner.run(chain)
    assert 'The step "a" failed after 0 s (exit status 7): error: no such package' in str(
        caught.value
    )
    assert str(tmp_path / "log" / "setup-a.log") in str(caught.value)
    assert "bye" in (tmp_path / "log" / "setup-a.log").read_text()
    assert order(tmp_path) == []
    assert list(runner.due(chain)) == ["a", "b"]


def test_a_full_disk_is_said_plainly(tmp_path: Path, runner: Runner) -> None:
    code = "import sys; sys.exit('OSError: [Errno 28] No space left on device')"
    with pytest.raises(
        Problem, match=r"The disk is full: the step .a. could not write\. Free about"
    ):
        runner.run([make_step("a", code, tmp_path)])


def test_a_failure_ends_what_runs_beside_it(tmp_path: Path, runner: Runner) -> None:
    slow = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    wait_for_it = (
        "import os, time\nwhile not os.path.exists('pid') or not os.path.getsize('pid'):"
        " time.sleep(.01)\nraise SystemExit('error: gave up')"
    )
    chain = [make_step("slow", slow, tmp_path), make_step("bad", wait_for_it, tmp_path)]
    begun = time.monotonic()
    with pytest.raises(Problem, match="error: gave up"):
        runner.run(chain)
    assert time.monotonic() - begun < 30
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(runner.due(chain)) == ["slow", "bad"]


MISSING = [
    # what PATH offers (script text by name), the sentence
    ({}, "node is missing: install Node.js 20 or newer"),
    ({"node": "echo v20.1.0"}, "npm is missing: install Node.js 20"),
    ({"node": "echo v18.2.0", "npm": ""}, "Node.js v18.2.0 is too old: install version 20"),
    ({"node": "echo what", "npm": ""}, "`node --version` answered 'what': reinstall Node.js."),
]


@pytest.mark.parametrize(("programs", "sentence"), MISSING)
def test_node_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], sentence: str
) -> None:
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Problem) as caught:
        problems.check_node()
    assert sentence in str(caught.value)


def test_a_python_without_venv_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Problem, match=r"apt-get install python3\.11-venv"):
        problems.check_python_venv()


SPACE = [(0.1, False, True), (2.9, False, True), (0.3, True, False), (3.1, False, False)]


@pytest.mark.parametrize(("free_gib", "installed", "refused"), SPACE)
def test_free_space_is_checked_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_gib: float, installed: bool, refused: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free_gib * 2**30))
    if refused:
        with pytest.raises(Problem, match=r"GiB free and .* are needed: free some space"):
            problems.check_disk(tmp_path, "up", installed=installed)
    else:
        problems.check_disk(tmp_path, "up", installed=installed)
    assert list(tmp_path.iterdir()) == []


def test_without_python_311_the_remedy_is_named(tmp_path: Path) -> None:
    for name in ("python3.11", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 127\n")
        (tmp_path / name).chmod(0o755)
    script = (ROOT / "scripts" / "bootstrap.sh").read_text().replace("/usr/bin/python3.11", "")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "bootstrap.sh").write_text(script)
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "scripts" / "bootstrap.sh"), "up"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        "Python 3.11 is missing: install it (on Debian 12: apt-get install"
    )


def test_ctrl_c_ends_the_step_that_runs(tmp_path: Path) -> None:
    """As `make up` would: the installer's own process, interrupted while a step sleeps."""
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "from scripts.installer import run\n"
        "from scripts.installer.run import Runner\n"
        "from scripts.installer.steps import Step\n"
        "from controlplane.supervisor.stamps import Stamps\n"
        "here = pathlib.Path(sys.argv[2]); run.ROOT = here\n"
        'sleep = \'import os, time; open("pid", "w").write(str(os.getpid())); time.sleep(600)\'\n'
        "step = Step('s', 's', ((sys.executable, '-c', sleep),), (), (), folder=here)\n"
        "try: Runner(Stamps(here / 'stamps'), here / 'log').run([step])\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(ROOT), str(tmp_path)])
    deadline = time.monotonic() + 20
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)  # poll interval of a condition with a deadline
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("goal", sorted(steps.GOALS))
def test_every_need_is_a_step_of_the_same_goal(goal: str) -> None:
    names = [step.name for step in steps.GOALS[goal]()]
    assert len(names) == len(set(names))
    for step in steps.GOALS[goal]():
        assert set(step.needs) <= set(names)
