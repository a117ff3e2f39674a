"""The coroutines that make the store a cluster, in the order in which they start.

Each is `async def run(store, clock) -> None`, runs until it is cancelled, and is restarted with
a line in the log if it raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from controlplane.sandbox import namespaces
from controlplane.sandbox.clock import Clock
from controlplane.sandbox.store import Store

Component = Callable[[Store, Clock], Awaitable[None]]

COMPONENTS: list[tuple[str, Component]] = [
    ("namespaces", namespaces.run),
]

# what `--nodes NAME` creates; each leaves what exists alone
POPULATIONS: dict[str, Callable[[Store], None]] = {}


def populate(store: Store, name: str) -> None:
    """Create the nodes of a named cluster; ValueError names those that there are."""
    if name not in POPULATIONS:
        known = ", ".join(sorted(POPULATIONS)) or "none yet"
        raise ValueError(f"--nodes {name!r} is not a cluster I know: choose one of {known}")
    POPULATIONS[name](store)
