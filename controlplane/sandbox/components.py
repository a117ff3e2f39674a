"""The coroutines that make the store a cluster, in the order in which they start.

Each is `async def run(store, clock) -> None`, runs until it is cancelled, and is restarted with
a line in the log if it raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from controlplane.sandbox import namespaces, scheduler
from controlplane.sandbox.clock import Clock
from controlplane.sandbox.controllers import deployment, garbage, job, nodes, replicaset
from controlplane.sandbox.emulator import Settings, fleet, kubelet
from controlplane.sandbox.store import Store

Component = Callable[[Store, Clock], Awaitable[None]]


def components(folder: Path) -> list[tuple[str, Component]]:
    """All of them; the node emulator keeps the containers' logs below `folder`."""
    return [
        ("namespaces", namespaces.run),
        ("garbage", garbage.run),
        ("nodes", nodes.run),
        ("job", job.run),
        ("deployment", deployment.run),
        ("replicaset", replicaset.run),
        ("scheduler", scheduler.run),
        ("emulator", partial(kubelet.run, settings=Settings(folder=folder))),
    ]


def populate(store: Store, name: str) -> None:
    """Create the nodes of a fleet that aren't there yet; ValueError says how to name one."""
    fleet.populate(store, fleet.parse(name))
