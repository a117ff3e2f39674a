"""The scheduler's loop: follow nodes and pods, bind what fits whenever something has changed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.controllers.pods import (
    condition_of,
    is_deleting,
    is_terminal,
    set_condition,
)
from controlplane.sandbox.errors import ApiError
from controlplane.sandbox.kinds import NODE, POD
from controlplane.sandbox.objects import Object, clone, meta, name_of, namespace_of
from controlplane.sandbox.scheduler.fitting import Cycle, NodeState, explain
from controlplane.sandbox.scheduler.requests import Needs, needs_of
from controlplane.sandbox.store import Event, Store

logger = logging.getLogger("sandbox.scheduler")
NAME = "default-scheduler"
_GATED = "Scheduling is blocked due to non-empty scheduling gates"
_MOST_AT_ONCE = 100  # bindings between two turns of the loop


@dataclass(slots=True)
class _Waiting:
    pod: Object
    needs: Needs
    seen: int

    @property
    def order(self) -> tuple[int, str, int]:
        """Priority, then age; what was seen first among pods of the same second."""
        return (
            -self.pod["spec"].get("priority", 0),
            meta(self.pod)["creationTimestamp"],
            self.seen,
        )


class Scheduler:
    """The scheduler's view of the cluster; `observe` events, then `cycle`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._nodes: dict[str, NodeState] = {}
        self._held: dict[str, tuple[str, Needs]] = {}  # pod uid -> node, needs
        self._waiting: dict[str, _Waiting] = {}
        self._serial = itertools.count()
        for node in store.list(NODE):
            self._node(node, gone=False)
        for pod in store.list(POD):
            self._pod(pod, gone=False)

    @property
    def nodes(self) -> dict[str, NodeState]:
        """The nodes with what is held on them (read only)."""
        return self._nodes

    def observe(self, event: Event) -> bool:
        """Take in one change; whether a pod may fit now that didn't before."""
        if event.kind is NODE:
            return self._node(event.object, gone=event.type == "DELETED")
        if event.kind is POD:
            return self._pod(event.object, gone=event.type == "DELETED")
        return False

    def cycle(self) -> bool:
        """Bind the waiting pods that fit, the others get the reason. Whether some are left over
        for the next turn."""
        cycle, bound, more = Cycle(self._nodes), 0, False
        refused: list[_Waiting] = []
        for waiting in sorted(self._waiting.values(), key=lambda w: w.order):
            if bound == _MOST_AT_ONCE:
                more = True
                break
            node = cycle.place(waiting.needs)
            if node is None:
                refused.append(waiting)
            else:
                self._bind(waiting, node)
                bound += 1
        self._refuse(refused)
        return more

    def _bind(self, waiting: _Waiting, node: str) -> None:
        pod = waiting.pod
        uid = meta(pod)["uid"]
        del self._waiting[uid]
        self._held[uid] = (node, waiting.needs)
        try:
            self._store.bind(namespace_of(pod), name_of(pod), node)
        except ApiError as error:  # what is held on the node stays so until the pod's next event
            logger.warning("binding %s/%s to %s: %s", namespace_of(pod), name_of(pod), node, error)

    def _refuse(self, refused: list[_Waiting]) -> None:
        """Say why, once all that fitted is placed; pods with equal needs share the reason."""
        messages: dict[tuple[Needs, str], str] = {}
        for waiting in refused:
            policy = waiting.pod["spec"].get("preemptionPolicy") or ""
            key = (waiting.needs, policy)
            if key not in messages:
                messages[key] = explain(self._nodes.values(), waiting.needs, policy)
            self._mark(waiting.pod, "Unschedulable", messages[key])

    def _mark(self, pod: Object, reason: str, message: str) -> None:
        old = condition_of(pod, "PodScheduled")
        if old is not None and old.get("message") == message and old["status"] == "False":
            return
        new = clone(pod)
        set_condition(
            new.setdefault("status", {}),
            "PodScheduled",
            "False",
            reason,
            message,
            self._clock.now(),
            lastProbeTime=None,
        )
        self._store.update(POD, new, subresource="status")

    def _node(self, node: Object, *, gone: bool) -> bool:
        name = name_of(node)
        old = self._nodes.get(name)
        if gone:
            self._nodes.pop(name, None)
            return old is not None
        new = NodeState.of(node)
        if old is not None:
            if old.offers_as(new):
                return False
            new.used, new.pods, new.stamp = old.used, old.pods, old.stamp + 1
        else:
            for held_on, needs in self._held.values():
                if held_on == name:
                    new.add(needs.requests)
        self._nodes[name] = new
        return True

    def _pod(self, pod: Object, *, gone: bool) -> bool:
        uid, spec = meta(pod)["uid"], pod["spec"]
        node = spec.get("nodeName")
        if gone or is_terminal(pod):
            self._waiting.pop(uid, None)
            return self._release(uid)
        if node:
            self._waiting.pop(uid, None)
            self._hold(uid, node, spec)
            return False
        if is_deleting(pod) or spec.get("schedulerName") not in (None, NAME):
            self._waiting.pop(uid, None)
            return False
        if spec.get("schedulingGates"):
            self._mark(pod, "SchedulingGated", _GATED)
            return False
        known = self._waiting.get(uid)
        if known is not None:
            known.pod = pod
            needs = needs_of(spec)
            changed = needs != known.needs
            known.needs = needs
            return changed
        self._waiting[uid] = _Waiting(pod, needs_of(spec), next(self._serial))
        return True

    def _hold(self, uid: str, node: str, spec: Object) -> None:
        held = self._held.get(uid)
        if held is not None and held[0] == node:
            return
        self._release(uid)
        needs = needs_of(spec)
        self._held[uid] = (node, needs)
        if node in self._nodes:
            self._nodes[node].add(needs.requests)

    def _release(self, uid: str) -> bool:
        held = self._held.pop(uid, None)
        if held is None:
            return False
        if held[0] in self._nodes:
            self._nodes[held[0]].add(held[1].requests, -1)
        return True


async def run(store: Store, clock: Clock) -> None:
    """Schedule until cancelled; sleeps while nothing changes."""
    watch = store.watch()
    try:
        scheduler = Scheduler(store, clock)
        more = scheduler.cycle()
        while more or await watch.wait():
            changed = [scheduler.observe(event) for event in watch.drain()]
            if more or any(changed):
                more = scheduler.cycle()
            await asyncio.sleep(0)
    finally:
        watch.close()
