"""The node lifecycle controller: heartbeats, taints by condition, eviction by NoExecute taints.

Source: k8s.io/kubernetes `pkg/controller/{nodelifecycle,tainteviction}`.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.sandbox.clock import Clock, parse_rfc3339, rfc3339
from controlplane.sandbox.controllers.pods import (
    condition_of,
    is_active,
    is_ready,
    is_terminal,
    is_true,
    set_condition,
)
from controlplane.sandbox.controllers.runner import run_controller
from controlplane.sandbox.kinds import LEASE, NODE, POD
from controlplane.sandbox.objects import Object, clone, name_of, namespace_of
from controlplane.sandbox.scheduler.fitting import UNSCHEDULABLE_TAINT, tolerates
from controlplane.sandbox.store import Event, Store

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
LEASE_NAMESPACE = "kube-node-lease"
GRACE_SECONDS = 40.0  # node-monitor-grace-period
_OURS = (NOT_READY, UNREACHABLE, UNSCHEDULABLE_TAINT)


class NodeController:
    """Reconciles one node at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # a lease that grew old while the sandbox was down says nothing about the node
        self._started = clock.now()

    @staticmethod
    def keys_of(event: Event) -> Iterable[str]:
        """The node that an event concerns."""
        if event.kind is NODE and event.type != "DELETED":
            return [name_of(event.object)]
        if event.kind is LEASE and namespace_of(event.object) == LEASE_NAMESPACE:
            return [name_of(event.object)]
        if event.kind is POD and event.type != "DELETED":
            node = event.object["spec"].get("nodeName")
            bound = event.previous is None or not event.previous["spec"].get("nodeName")
            return [node] if node and bound else []
        return []

    def sync(self, name: str) -> float | None:
        """Judge the heartbeat, set the taints, evict; when to look again."""
        node = self._store.find(NODE, None, name)
        if node is None:
            return None
        stale_at = self._stale_at(name)
        node = self._judge(node, stale_at)
        node = self._taint(node)
        if not is_true(node, "Ready"):
            self._mark_pods(name)
        times = [stale_at, self._evict(node)]
        return min((t for t in times if t is not None and t > self._clock.now()), default=None)

    def _stale_at(self, name: str) -> float | None:
        lease = self._store.find(LEASE, LEASE_NAMESPACE, name)
        renewed = ((lease or {}).get("spec") or {}).get("renewTime")
        if renewed is None:
            return None
        return max(parse_rfc3339(renewed), self._started) + GRACE_SECONDS

    def _judge(self, node: Object, stale_at: float | None) -> Object:
        """A kubelet that is silent for too long: its conditions become Unknown."""
        now = self._clock.now()
        ready = condition_of(node, "Ready")
        if stale_at is None or now < stale_at or (ready or {}).get("status") == "Unknown":
            return node
        new = clone(node)
        why = "Kubelet stopped posting node status."
        set_condition(
            new.setdefault("status", {}), "Ready", "Unknown", "NodeStatusUnknown", why, now
        )
        return self._store.update(NODE, new, subresource="status")

    def _taint(self, node: Object) -> Object:
        spec = node.get("spec") or {}
        old = spec.get("taints") or []
        wanted = _wanted_taints(node)
        kept = [t for t in old if t["key"] not in _OURS or (t["key"], t["effect"]) in wanted]
        have = {(taint["key"], taint["effect"]) for taint in kept}
        moment = rfc3339(self._clock.now())
        taints = kept + [
            {"key": key, "effect": effect, "timeAdded": moment}
            for key, effect in wanted
            if (key, effect) not in have
        ]
        if taints == old:
            return node
        new = clone(node)
        new["spec"]["taints"] = taints
        if not taints:
            del new["spec"]["taints"]
        return self._store.update(NODE, new)

    def _pods(self, name: str) -> list[Object]:
        return [pod for pod in self._store.list(POD) if pod["spec"].get("nodeName") == name]

    def _mark_pods(self, name: str) -> None:
        """Pods on a node that isn't ready aren't ready either."""
        for pod in self._pods(name):
            if is_ready(pod) and not is_terminal(pod):
                new = clone(pod)
                set_condition(
                    new["status"], "Ready", "False", "NodeNotReady", "", self._clock.now()
                )
                self._store.update(POD, new, subresource="status")

    def _evict(self, node: Object) -> float | None:
        """Delete pods that don't tolerate a NoExecute taint (any longer); when the next goes."""
        taints = [t for t in node["spec"].get("taints") or () if t["effect"] == "NoExecute"]
        if not taints:
            return None
        now, next_one = self._clock.now(), None
        for pod in filter(is_active, self._pods(name_of(node))):
            due = min(_leaves_at(pod, taint, now) for taint in taints)
            if due <= now:
                self._delete(pod)
            elif due != float("inf"):
                next_one = min(due, next_one or due)
        return next_one

    def _delete(self, pod: Object) -> None:
        new = clone(pod)
        why = "Taint manager: deleting due to NoExecute taint"
        set_condition(
            new["status"], "DisruptionTarget", "True", "DeletionByTaintManager", why,
            self._clock.now(),
        )  # fmt: skip
        self._store.update(POD, new, subresource="status")
        self._store.delete(POD, namespace_of(pod), name_of(pod))


def _wanted_taints(node: Object) -> list[tuple[str, str]]:
    ready = (condition_of(node, "Ready") or {}).get("status", "Unknown")
    wanted = []
    if ready == "False":
        wanted += [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
    elif ready == "Unknown":
        wanted += [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.append((UNSCHEDULABLE_TAINT, "NoSchedule"))
    return wanted


def _leaves_at(pod: Object, taint: Object, now: float) -> float:
    """When the pod must go because of this taint: now, later, or never (infinity)."""
    as_tuple = (taint["key"], taint.get("value") or "", taint["effect"])
    matching = [
        item
        for item in pod["spec"].get("tolerations") or ()
        if tolerates(
            (
                item.get("key") or "",
                item.get("operator") or "Equal",
                item.get("value") or "",
                item.get("effect") or "",
            ),
            as_tuple,
        )
    ]
    if not matching:
        return now
    limits = [item["tolerationSeconds"] for item in matching if "tolerationSeconds" in item]
    if not limits:
        return float("inf")
    added = parse_rfc3339(taint["timeAdded"]) if taint.get("timeAdded") else now
    return added + max(min(limits), 0)


async def run(store: Store, clock: Clock) -> None:
    """Watch over nodes until cancelled."""
    controller = NodeController(store, clock)
    await run_controller(
        store,
        clock,
        name="nodes",
        first=[name_of(node) for node in store.list(NODE)],
        keys_of=controller.keys_of,
        sync=controller.sync,
    )
