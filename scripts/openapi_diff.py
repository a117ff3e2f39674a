"""Fails when docs/openapi.yaml is not what the API's code generates (`make openapi` writes it)."""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "docs" / "openapi.yaml"
SHOWN_LINES = 60


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "openapi.yaml"
        command = [sys.executable, "manage.py", "spectacular", "--validate", "--fail-on-warn"]
        status = subprocess.call([*command, "--file", str(fresh)], cwd=ROOT)
        if status:
            return status
        new = fresh.read_text().splitlines()
    old = COMMITTED.read_text().splitlines() if COMMITTED.exists() else []
    changes = list(difflib.unified_diff(old, new, "docs/openapi.yaml", "the code", lineterm=""))
    if not changes:
        return 0
    print("\n".join(changes[:SHOWN_LINES]))
    print("docs/openapi.yaml is not what the code says: run `make openapi` and commit both files.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
