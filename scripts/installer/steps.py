"""The steps of a set-up, what each needs and what it leaves. Read top to bottom.

Two lanes run at once: Python packages (network and disk) beside the front end (node).
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TORCH = "torch==2.13.0"
# Left out of compiling: what is never imported here (other models, torch's own compilers).
NOT_COMPILED = (
    r"/(transformers/models/(?!auto/|llama/|__init__)|torch/(testing|_inductor|_dynamo|onnx|ao)/"
    r"|[^/]*/tests?/)"
)
SITE_PACKAGES = VENV / "lib" / "python3.11" / "site-packages"
COMPILE = (
    str(PYTHON),
    "-m",
    "compileall",
    "-q",
    "-j",
    "2",
    "-x",
    NOT_COMPILED,
    str(SITE_PACKAGES),
)


@dataclass(frozen=True, slots=True)
class Step:
    """`commands` run in order, in `folder`; skipped while inputs and outputs are as they were."""

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    inputs: tuple[str, ...]
    outputs: tuple[Path, ...]
    needs: tuple[str, ...] = ()
    folder: Path = ROOT
    extra: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def python_steps() -> list[Step]:
    pip = (str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    return [
        Step(
            "venv",
            "virtual environment",
            ((sys.executable, "-m", "venv", str(VENV)),),
            inputs=(),
            outputs=(PYTHON,),
            extra=sys.version,
        ),
        Step(
            "packages",
            "Python packages, by hash",
            (
                (*pip, "--require-hashes", "-r", "requirements/bootstrap.txt"),
                uv_install("runtime", "trainer"),
            ),
            inputs=(
                "requirements/bootstrap.txt",
                "requirements/runtime.txt",
                "requirements/trainer.txt",
            ),
            outputs=(VENV / "bin" / "uvicorn",),
            needs=("venv",),
        ),
        Step(
            # pip, not uv: it honours the machine's own pip settings, such as a CPU build's index.
            "torch",
            "torch",
            ((*pip, "--no-compile", TORCH),),
            inputs=(),
            outputs=(SITE_PACKAGES / "torch",),
            needs=("packages",),
            extra=TORCH,
        ),
        Step(
            "compile",
            "byte code",
            (COMPILE,),
            inputs=("requirements/runtime.txt", "requirements/trainer.txt"),
            outputs=(),
            needs=("torch",),
            extra=TORCH,
        ),
    ]


def uv_install(*locks: str) -> tuple[str, ...]:
    command = [str(VENV / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(PYTHON)]
    command.append("--require-hashes")
    for lock in locks:
        command += ["-r", f"requirements/{lock}.txt"]
    return tuple(command)


def frontend_steps() -> list[Step]:
    frontend = ROOT / "frontend"
    return [
        Step(
            "npm",
            "front-end packages",
            (("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),),
            inputs=("frontend/package.json", "frontend/package-lock.json"),
            outputs=(frontend / "node_modules" / ".bin" / "vite",),
            folder=frontend,
        ),
        Step(
            "dashboard",
            "dashboard",
            # Types are checked by `make test`; serving needs only the bundle.
            (("npx", "--no-install", "vite", "build", "--logLevel", "warn"),),
            inputs=(
                "frontend/src/**/*",
                "frontend/public/**/*",
                "frontend/*.html",
                "frontend/*.json",
                "frontend/*.ts",
                "frontend/*.js",
                "frontend/*.mjs",
                "frontend/*.cjs",
            ),
            outputs=(frontend / "dist",),
            needs=("npm",),
            folder=frontend,
        ),
    ]


def development_steps() -> list[Step]:
    return [
        Step(
            "development",
            "test tools, by hash",
            (uv_install("development"), COMPILE),
            inputs=("requirements/development.txt",),
            outputs=(VENV / "bin" / "pytest",),
            needs=("compile",),
        ),
        *system_packages(),
    ]


def system_packages() -> list[Step]:
    """Chromium and PostgreSQL through apt where they are missing and may be installed."""
    missing = [
        p
        for p, there in (("chromium", has_chromium()), ("postgresql", has_postgres()))
        if not there
    ]
    if not missing or not may_install():
        return []
    quiet = ("-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0")
    return [
        Step(
            "system",
            "system packages: " + ", ".join(missing),
            (
                ("apt-get", *quiet, "update"),
                ("apt-get", *quiet, "install", "--yes", "--no-install-recommends", *missing),
            ),
            inputs=(),
            outputs=(),
            extra=str(os.times()),
            environment={
                "DEBIAN_FRONTEND": "noninteractive",
                # Debian would start its own cluster at once; the tests start theirs.
                "PG_CREATECLUSTER": "no",
                "RUNLEVEL": "1",
            },
        ),
    ]


def has_chromium() -> bool:
    return any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))


def has_postgres() -> bool:
    return bool(list(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or shutil.which("initdb"))


def may_install() -> bool:
    """Root with apt, as on a fresh machine or in a container. Nobody is asked for a password."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def skipped() -> list[str]:
    """One sentence for each thing that the tests will go without."""
    notes = []
    if not has_chromium():
        notes.append("browser tests skipped: chromium is missing and apt-get install needs root")
    if not has_postgres():
        notes.append(
            "PostgreSQL tests skipped: postgresql is missing and apt-get install needs root"
        )
    return notes


GOALS = {
    "up": lambda: [*python_steps(), *frontend_steps()],
    "test": lambda: [*python_steps(), *development_steps(), *frontend_steps()],
}
