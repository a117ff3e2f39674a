"""How a warm standby waits, script and all, until it is needed. Standard library only."""

from __future__ import annotations

import os
import sys

VARIABLE = "CONCERTINA_PARK"


def wait_if_parked() -> float | None:
    """Called just before a replica offers itself to the authority. In a warm standby it blocks
    until the agent wakes it and returns the moment of that (CLOCK_MONOTONIC, seconds); elsewhere
    it returns None at once. When the agent is gone, the process ends: nobody would ever wake it."""
    path = os.environ.pop(VARIABLE, "")
    if not path:
        return None
    name = os.environ.get("CONCERTINA_REPLICA", "")
    print(f"[{name}] parked: warm, waits until it is needed", file=sys.stderr, flush=True)
    with open(path, "rb", buffering=0) as fifo:  # noqa: PTH123 - a FIFO, which the agent holds open
        word = fifo.read(64)
    if not word:
        os._exit(0)
    return float(word)
