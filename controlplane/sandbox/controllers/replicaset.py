"""The ReplicaSet controller: as many pods as `spec.replicas` says.

Source: k8s.io/kubernetes `pkg/controller/replicaset/replica_set.go`.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.sandbox.clock import Clock, parse_rfc3339
from controlplane.sandbox.controllers.owned import Owned, controller_of
from controlplane.sandbox.controllers.pods import (
    condition_of,
    from_template,
    is_active,
    is_ready,
    is_terminating,
    leaving_first,
)
from controlplane.sandbox.controllers.runner import run_controller
from controlplane.sandbox.kinds import POD, REPLICASET
from controlplane.sandbox.objects import Object, clone, meta, name_of, namespace_of
from controlplane.sandbox.store import Event, Store

Key = tuple[str, str]
MOST_AT_ONCE = 100


class ReplicaSetController:
    """Reconciles one ReplicaSet at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pods = Owned(store, POD)

    def close(self) -> None:
        self._pods.close()

    @staticmethod
    def keys_of(event: Event) -> Iterable[Key]:
        """The ReplicaSet that an event concerns."""
        if event.kind is REPLICASET and event.type != "DELETED":
            return [(namespace_of(event.object), name_of(event.object))]
        if event.kind is POD:
            owner = controller_of(event.object)
            if owner is not None and owner["kind"] == REPLICASET.kind:
                return [(namespace_of(event.object), owner["name"])]
        return []

    def sync(self, key: Key) -> float | None:
        """Create or delete pods, write the status; when a pod becomes available, if one will."""
        replicaset = self._store.find(REPLICASET, *key)
        if replicaset is None:
            return None
        uid = meta(replicaset)["uid"]
        if not meta(replicaset).get("deletionTimestamp"):
            self._manage(replicaset, [pod for pod in self._pods.of(uid) if is_active(pod)])
        return self._write(replicaset, self._pods.of(uid))

    def _manage(self, replicaset: Object, active: list[Object]) -> None:
        missing = replicaset["spec"]["replicas"] - len(active)
        for _ in range(min(missing, MOST_AT_ONCE)):  # their events bring the next sync
            prefix = f"{name_of(replicaset)}-"
            template = replicaset["spec"]["template"]
            self._store.create(POD, from_template(REPLICASET, replicaset, template, prefix=prefix))
        for pod in leaving_first(active, self._siblings(replicaset))[: max(-missing, 0)]:
            self._store.delete(POD, namespace_of(pod), name_of(pod))

    def _siblings(self, replicaset: Object) -> list[Object]:
        """The pods of the owner's other ReplicaSets too: they count when pods share a node."""
        owner = controller_of(replicaset)
        if owner is None:
            return self._pods.of(meta(replicaset)["uid"])
        found: list[Object] = []
        for other in self._store.list(REPLICASET, namespace_of(replicaset)):
            if (controller_of(other) or {}).get("uid") == owner["uid"]:
                found += self._pods.of(meta(other)["uid"])
        return found

    def _write(self, replicaset: Object, pods: list[Object]) -> float | None:
        spec, now = replicaset["spec"], self._clock.now()
        active = [pod for pod in pods if is_active(pod)]
        ready = [pod for pod in active if is_ready(pod)]
        since = [available_at(pod, spec.get("minReadySeconds", 0)) for pod in ready]
        labels = (meta(spec["template"]).get("labels") or {}).items()
        full = [pod for pod in active if labels <= (meta(pod).get("labels") or {}).items()]
        new = clone(replicaset)
        status: Object = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(full),
            "readyReplicas": len(ready),
            "availableReplicas": sum(when <= now for when in since),
            "terminatingReplicas": sum(map(is_terminating, pods)),
            "observedGeneration": meta(replicaset)["generation"],
        }
        new["status"] = {k: v for k, v in status.items() if v or k == "replicas"}
        self._store.update(REPLICASET, new, subresource="status")
        return min((when for when in since if when > now), default=None)


def available_at(pod: Object, min_ready_seconds: float) -> float:
    """When a ready pod counts as available (unix seconds)."""
    if not min_ready_seconds:
        return 0.0
    condition = condition_of(pod, "Ready") or {}
    return parse_rfc3339(condition["lastTransitionTime"]) + min_ready_seconds


async def run(store: Store, clock: Clock) -> None:
    """Reconcile ReplicaSets until cancelled."""
    controller = ReplicaSetController(store, clock)
    try:
        await run_controller(
            store,
            clock,
            name="replicaset",
            first=[(namespace_of(rs), name_of(rs)) for rs in store.list(REPLICASET)],
            keys_of=controller.keys_of,
            sync=controller.sync,
        )
    finally:
        controller.close()
