"""python -m controlplane.supervisor.probe http://HOST:PORT/PATH | file:PATH[?age=SECONDS]

A container's health check, by the checks that `make up` uses: exit status 0 when it passes, 1 when
not. Standard library only, so it costs a tenth of what loading Django would.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from controlplane.supervisor.health import Check, FreshFile, HttpOk


def check_for(target: str) -> Check:
    """The check that a target names. Raises ValueError for one that it can't read."""
    parts = urlsplit(target)
    if parts.scheme in ("http", "https") and parts.hostname:
        return HttpOk(target)
    if parts.scheme == "file" and parts.path:
        age = parse_qs(parts.query).get("age", ["30"])[0]
        return FreshFile(Path(parts.path), age_s=float(age))
    raise ValueError(f"{target!r} is neither http://host/path nor file:/path")


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        check = check_for(arguments[0])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if asyncio.run(check.passes(0.0)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
