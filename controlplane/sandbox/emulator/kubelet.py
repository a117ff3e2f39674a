"""The emulated kubelets: one loop for all nodes and their pods."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.controllers.pods import is_true
from controlplane.sandbox.controllers.runner import WorkQueue, run_controller
from controlplane.sandbox.emulator import Settings
from controlplane.sandbox.emulator.nodes import NodeAgent, state_of
from controlplane.sandbox.emulator.pods import PodAgent
from controlplane.sandbox.kinds import CONFIGMAP, NODE, POD, SECRET
from controlplane.sandbox.objects import Object, meta, name_of, namespace_of
from controlplane.sandbox.store import Event, Store

logger = logging.getLogger("sandbox.kubelet")
Key = tuple[str, str]  # ("", node) or (namespace, pod)


class Kubelets:
    """Dispatches keys to the node agent and the pod agent."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self.queue: WorkQueue[Key] = WorkQueue(clock)
        self.nodes = NodeAgent(store, clock, settings)
        self.pods = PodAgent(store, clock, settings, self.queue.add)

    def first(self) -> list[Key]:
        """Every node and every bound pod."""
        nodes = [("", name_of(node)) for node in self._store.list(NODE)]
        return nodes + [_key(pod) for pod in self._store.list(POD) if pod["spec"].get("nodeName")]

    def keys_of(self, event: Event) -> Iterable[Key]:
        """What an event concerns; a pod that is gone is forgotten at once."""
        obj = event.object
        if event.kind is POD:
            if event.type == "DELETED":
                self.pods.gone(obj)
            elif obj["spec"].get("nodeName"):
                return [_key(obj)]
        elif event.kind is NODE:
            keys = [("", name_of(obj))]
            if event.previous is not None and _condition(event.previous) != _condition(obj):
                keys += self._pods_on(name_of(obj))
            return keys
        elif event.kind in (SECRET, CONFIGMAP) and event.type != "DELETED":
            return self.pods.waiting_in(meta(obj)["namespace"])
        return []

    def sync(self, key: Key) -> float | None:
        """One step; when the next is due."""
        if key[0]:
            return self.pods.sync(key)
        self.pods.processes.trim_logs()
        return self.nodes.sync(key[1])

    def _pods_on(self, node: str) -> list[Key]:
        return [_key(p) for p in self._store.list(POD) if p["spec"].get("nodeName") == node]


def _condition(node: Object) -> tuple[str, bool]:
    """What of a node concerns its pods."""
    return (state_of(node), is_true(node, "Ready"))


def _key(pod: Object) -> Key:
    return (namespace_of(pod), name_of(pod))


async def run(store: Store, clock: Clock, settings: Settings) -> None:
    """Run nodes and pods until cancelled; local processes end with it."""
    kubelets = Kubelets(store, clock, settings)
    if left := kubelets.pods.processes.sweep():
        logger.warning("ended %d processes that an earlier sandbox left", left)
    store.hooks.log_path = kubelets.pods.processes.log_path
    store.hooks.send_signal = kubelets.pods.send_signal
    try:
        await run_controller(
            store,
            clock,
            name="kubelet",
            first=kubelets.first(),
            keys_of=kubelets.keys_of,
            sync=kubelets.sync,
            queue=kubelets.queue,
        )
    finally:
        store.hooks.log_path = store.hooks.send_signal = None
        await kubelets.pods.processes.close()
