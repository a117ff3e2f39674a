"""python -m scripts.check [--lint] [pytest arguments]: what `make test` and `make lint` run.

First what is quick to fail (style, types, import rules, generated files), all of it, so that one
run shows every finding; then the tests on SQLite; then on PostgreSQL those that use a database.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FRONTEND = ROOT / "frontend"
BIN = ROOT / ".venv" / "bin"
PYTHON = str(BIN / "python")


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    command: tuple[str, ...]
    folder: Path = ROOT


LINT = (
    Check("ruff", (str(BIN / "ruff"), "check", ".")),
    Check("ruff format", (str(BIN / "ruff"), "format", "--check", ".")),
    Check("import rules", (str(BIN / "lint-imports"),)),
    Check("migrations", (PYTHON, "manage.py", "makemigrations", "--check", "--dry-run")),
    Check("OpenAPI schema", (PYTHON, "-m", "scripts.openapi_diff")),
    Check("dashboard style", ("npx", "--no-install", "biome", "check", "."), FRONTEND),
    Check("dashboard types", ("npx", "--no-install", "tsc", "-b"), FRONTEND),
    Check("dashboard client", ("npm", "run", "--silent", "check:generated"), FRONTEND),
    Check("mypy", (str(BIN / "mypy"),)),
    Check("dashboard tests", ("npx", "--no-install", "vitest", "run"), FRONTEND),
)


def main(arguments: list[str]) -> int:
    only_lint = arguments[:1] == ["--lint"]
    if only_lint or not arguments:
        if failed := run_all(LINT):
            print(f"\nFailed: {', '.join(failed)}.", file=sys.stderr)
            return 1
        if only_lint:
            return 0
    return run_tests(arguments)


def run_all(checks: tuple[Check, ...]) -> list[str]:
    """Run each, show the output of those that fail; their names."""
    failed = []
    for number, check in enumerate(checks, 1):
        begun = time.monotonic()
        done = subprocess.run(
            check.command,
            cwd=check.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        word = "ok" if done.returncode == 0 else "FAILED"
        seconds = time.monotonic() - begun
        print(f"[{number}/{len(checks)}] {check.name}: {word} ({seconds:.1f} s)", flush=True)
        if done.returncode != 0:
            failed.append(check.name)
            print(done.stdout, flush=True)
    return failed


def run_tests(arguments: list[str]) -> int:
    """Both runs; the exit status of the first that fails."""
    from tests.services.postgres import skip_reason

    pytest = [PYTHON, "-m", "pytest", "-p", "tests.services.plugin", *arguments]
    print("\nTests on SQLite", flush=True)
    if status := call(pytest):
        return status
    if reason := skip_reason():
        print(f"Database tests on PostgreSQL skipped: {reason}.", flush=True)
        return 0
    print("\nDatabase tests on PostgreSQL", flush=True)
    services = [PYTHON, "-m", "tests.services", "--postgres", "--"]
    status = call([*services, *pytest, "--database-only"])
    # 5: nothing selected, as when the arguments name a test without a database
    return 0 if status == 5 and arguments else status


def call(command: list[str]) -> int:
    return subprocess.call(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL)


def environment() -> dict[str, str]:
    values = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    values.pop("PYTHONDONTWRITEBYTECODE", None)
    values.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.test")
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
