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
