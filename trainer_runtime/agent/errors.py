"""Why an agent gave up, in the form of torchrun's error files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MAX_BYTES = 1 << 20


def read_error(path: Path) -> dict[str, Any]:
    """What a rank wrote on its failure, as {"error": ...}; empty if it wrote nothing."""
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return {"error": said["message"]} if isinstance(said, dict) and "message" in said else {}


def write_error(
    path: Path | None, reason: str, extra: dict[str, Any], log: Callable[[str], None]
) -> None:
    """{"message": {"message": reason, "extraInfo": extra}}, as torchrun's. Never raises."""
    if path is None:
        return
    extra = {"timestamp": str(int(time.time())), **extra}
    try:
        path.write_text(json.dumps({"message": {"message": reason, "extraInfo": extra}}))
    except OSError as error:
        log(f"--error-file {path}: {error}")
