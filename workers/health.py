"""Signs of life: a file that a healthy process writes again and again (`STATE_DIR/health/<name>`).

The supervisor, and a container's health check, look at its age. Worker and beat write it only
while the broker answers; the watcher writes it from its main loop.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

log = logging.getLogger(__name__)

EVERY_S = 2.0


def path_of(name: str) -> Path:
    return Path(settings.STATE_DIR) / "health" / name


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Replace the file as a whole, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps({"pid": os.getpid(), "at": time.time(), **state}) + "\n")
    fresh.replace(path)


def keep(name: str) -> threading.Thread:
    """Start writing `name` for as long as this process lives and Redis answers."""
    thread = threading.Thread(target=_beat, args=(path_of(name),), name="health", daemon=True)
    thread.start()
    return thread


def _beat(path: Path) -> None:
    from workers import mailbox

    healthy = True
    while True:
        try:
            mailbox.client().ping()
            write(path, {})
            healthy = True
        except Exception as error:  # no sign of life is the sign; say why once
            if healthy:
                log.warning("no sign of life in %s: %s", path, error)
            healthy = False
        time.sleep(EVERY_S)
