"""The package by itself: its wheel, its modules, its example and its authority's command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

from tests.integration.trainer.job import ROOT, wait_for


def bare_environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **more}


def test_wheel_installs_and_every_module_imports(tmp_path: Path) -> None:
    """Built from a copy, so that the tree stays clean; torch comes from this environment."""
    source = tmp_path / "trainer_runtime"
    source.mkdir()
    package = ROOT / "trainer_runtime"
    for path in (p for p in package.rglob("*.*") if p.is_file() and "__pycache__" not in p.parts):
        target = source / path.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    build = [sys.executable, "-c", "import setuptools.build_meta as b; b.build_wheel('../dist')"]
    (tmp_path / "dist").mkdir()
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".py")}
    want = {f"trainer_runtime/{p.relative_to(package)}" for p in package.rglob("*.py")}
    assert names == want

    venv.create(tmp_path / "clean", symlinks=True, with_pip=False)
    python = tmp_path / "clean/bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    done = subprocess.run(
        [*install, "--no-index", "--disable-pip-version-check", str(wheel)], cwd=tmp_path,
        capture_output=True, text=True, check=False, env=bare_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (site,) = (tmp_path / "clean").glob("lib/python*/site-packages")
    modules = sorted(
        n.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for n in names
    )
    code = (
        f"import importlib, sys; [importlib.import_module(m) for m in {modules}]; "
        f"import trainer_runtime as t; [getattr(t, n) for n in t.__all__]; print(t.__file__); "
        f"sys.exit(any(m.split('.')[0] in ('django', 'celery', 'apps', 'controlplane') "
        f"for m in sys.modules))"
    )
    done = subprocess.run(
        [python, "-c", code], cwd=tmp_path / "clean", capture_output=True,
        text=True, check=False,
        env=bare_environment(PYTHONPATH=sysconfig.get_path("purelib")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(site / "trainer_runtime/__init__.py")


def test_example_trains_with_the_authority_as_a_command(tmp_path: Path) -> None:
    """Both as a reader of the README starts them; the loss falls, SIGTERM ends both."""
    authority = subprocess.Popen(
        [sys.executable, "-m", "trainer_runtime.authority", "--port", "0"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, env=bare_environment(),
    )  # fmt: skip
    example = None
    try:
        assert authority.stdout is not None
        address = authority.stdout.readline().strip().rpartition(" ")[2]
        output = tmp_path / "example.out"
        with output.open("wb") as file:
            example = subprocess.Popen(
                [sys.executable, "-m", "trainer_runtime.examples.tiny_llama", "--print-every",
                 "1", "--width", "64", "--layers", "1", "--warm-up-steps", "5",
                 "--learning-rate", "0.01", "--global-batch", "4"],
                cwd=ROOT, stderr=file,
                env=bare_environment(
                    CONCERTINA_AUTHORITY=address, JOB_COMPLETION_INDEX="0",
                    CONCERTINA_CACHE_DIR=str(tmp_path / "cache"),
                    CONCERTINA_CHECKPOINT_DIR=str(tmp_path / "checkpoints"),
                ),
            )  # fmt: skip

        def losses() -> list[float]:
            lines = [line for line in output.read_text().splitlines() if " loss " in line]
            return [float(line.split(" loss ")[1].split()[0]) for line in lines]

        wait_for("25 steps", lambda: len(losses()) >= 25 or example.poll() is not None, 100)
        got = losses()
        assert len(got) >= 25, output.read_text()
        assert 4.5 < got[0] < 6.5  # ln 256 = 5.55: knows nothing yet
        assert sum(got[-5:]) / 5 < got[0] - 1
        example.send_signal(signal.SIGTERM)
        assert example.wait(30) == 0
        assert len(list((tmp_path / "checkpoints").glob("*.state"))) == 1
        authority.send_signal(signal.SIGTERM)
        assert authority.wait(10) == 0
    finally:
        for each in (example, authority):
            if each is not None and each.poll() is None:
                each.kill()
                each.wait()
