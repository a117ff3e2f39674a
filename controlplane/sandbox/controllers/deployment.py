"""The Deployment controller: ReplicaSets by template, scaled and rolled.

Source: k8s.io/kubernetes `pkg/controller/deployment`. While a roll-out is under way a scale goes
to the newest ReplicaSet (the real controller spreads it in proportion).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.controllers.deployment_status import (
    max_surge,
    max_unavailable,
    write_status,
)
from controlplane.sandbox.controllers.owned import Owned, controller_of, controller_reference
from controlplane.sandbox.controllers.runner import run_controller
from controlplane.sandbox.kinds import DEPLOYMENT, REPLICASET
from controlplane.sandbox.objects import Object, clone, meta, name_of, namespace_of
from controlplane.sandbox.store import Event, Store

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
Key = tuple[str, str]


class DeploymentController:
    """Reconciles one Deployment at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._replicasets = Owned(store, REPLICASET)

    def close(self) -> None:
        self._replicasets.close()

    @staticmethod
    def keys_of(event: Event) -> Iterable[Key]:
        """The Deployment that an event concerns."""
        if event.kind is DEPLOYMENT and event.type != "DELETED":
            return [(namespace_of(event.object), name_of(event.object))]
        if event.kind is REPLICASET:
            owner = controller_of(event.object)
            if owner is not None and owner["kind"] == DEPLOYMENT.kind:
                return [(namespace_of(event.object), owner["name"])]
        return []

    def sync(self, key: Key) -> None:
        """One step of scaling or rolling out; the ReplicaSets' changes bring the next."""
        deployment = self._store.find(DEPLOYMENT, *key)
        if deployment is None:
            return
        owned = self._replicasets.of(meta(deployment)["uid"])
        if not meta(deployment).get("deletionTimestamp"):
            template = template_hash(deployment)
            newest = next((rs for rs in owned if _hash_of(rs) == template), None)
            paused = bool(deployment["spec"].get("paused"))
            if newest is None and not paused:
                newest = self._create(deployment, template, owned)
            old = [rs for rs in owned if newest is None or name_of(rs) != name_of(newest)]
            deployment = self._revise(deployment, newest, old)
            if newest is not None:
                self._step(deployment, newest, old, paused=paused)
            self._clean_up(deployment, newest, old)
        owned = self._replicasets.of(meta(deployment)["uid"])
        write_status(self._store, deployment, owned, template_hash(deployment), self._clock.now())

    # -- ReplicaSets ---------------------------------------------------------------------------

    def _create(self, deployment: Object, template: str, owned: list[Object]) -> Object:
        spec = deployment["spec"]
        pods = clone(spec["template"])
        pods.setdefault("metadata", {}).setdefault("labels", {})[HASH_LABEL] = template
        selector = clone(spec["selector"])
        selector.setdefault("matchLabels", {})[HASH_LABEL] = template
        others = sum(rs["spec"]["replicas"] for rs in owned)
        most = spec["replicas"] + max_surge(deployment)
        recreate = spec["strategy"]["type"] == "Recreate"
        first = 0 if recreate and others else max(min(spec["replicas"], most - others), 0)
        return self._store.create(
            REPLICASET,
            {
                "metadata": {
                    "name": f"{name_of(deployment)}-{template}",
                    "namespace": namespace_of(deployment),
                    "labels": dict(meta(pods)["labels"]),
                    "annotations": {REVISION: str(_last_revision(owned) + 1)},
                    "ownerReferences": [controller_reference(DEPLOYMENT, deployment)],
                },
                "spec": {
                    "replicas": first,
                    "minReadySeconds": spec.get("minReadySeconds", 0),
                    "selector": selector,
                    "template": pods,
                },
            },
        )

    def _revise(self, deployment: Object, newest: Object | None, old: list[Object]) -> Object:
        """Number the newest ReplicaSet above the others (a roll-back), tell the Deployment."""
        if newest is None:
            return deployment
        revision = int((meta(newest).get("annotations") or {}).get(REVISION, 0))
        if revision <= _last_revision(old):
            revision = _last_revision(old) + 1
            changed = clone(newest)
            changed["metadata"].setdefault("annotations", {})[REVISION] = str(revision)
            self._store.update(REPLICASET, changed)
        if (meta(deployment).get("annotations") or {}).get(REVISION) == str(revision):
            return deployment
        changed = clone(deployment)
        changed["metadata"].setdefault("annotations", {})[REVISION] = str(revision)
        return self._store.update(DEPLOYMENT, changed)

    def _scale(self, replicaset: Object, replicas: int) -> None:
        current = self._store.get(REPLICASET, namespace_of(replicaset), name_of(replicaset))
        if current["spec"]["replicas"] != replicas:
            changed = clone(current)
            changed["spec"]["replicas"] = replicas
            self._store.update(REPLICASET, changed)

    def _step(self, deployment: Object, newest: Object, old: list[Object], *, paused: bool) -> None:
        wanted = deployment["spec"]["replicas"]
        recreate = deployment["spec"]["strategy"]["type"] == "Recreate"
        # Recreate waits for the old pods to be gone, not only on their way out
        held = ("replicas", "terminatingReplicas") if recreate else ("replicas",)
        live = [rs for rs in old if rs["spec"]["replicas"] or any(_count(rs, k) for k in held)]
        if not live:
            self._scale(newest, wanted)
        elif paused:
            others = sum(rs["spec"]["replicas"] for rs in live)
            self._scale(newest, max(wanted - others, 0))
        elif recreate:
            for replicaset in live:
                self._scale(replicaset, 0)
            if not any(_count(rs, "replicas") + _count(rs, "terminatingReplicas") for rs in live):
                self._scale(newest, wanted)
        else:
            self._roll(deployment, newest, live)

    def _roll(self, deployment: Object, newest: Object, old: list[Object]) -> None:
        """Grow the new within maxSurge, else shrink the old within maxUnavailable."""
        wanted = deployment["spec"]["replicas"]
        others = sum(rs["spec"]["replicas"] for rs in old)
        size = newest["spec"]["replicas"]
        target = min(wanted, max(size, wanted + max_surge(deployment) - others))
        if target != size:
            self._scale(newest, target)
            return
        least = wanted - max_unavailable(deployment)
        spare = size + others - least - (size - _count(newest, "availableReplicas"))
        if spare <= 0:  # also while a status lags behind its spec
            return
        available = sum(_count(rs, "availableReplicas") for rs in [newest, *old]) - least
        for replicaset in old:
            # pods that aren't available go first: they serve nobody
            replicas = replicaset["spec"]["replicas"]
            broken = max(min(replicas - _count(replicaset, "availableReplicas"), spare), 0)
            sound = max(min(replicas - broken, available), 0)
            spare, available = spare - broken, available - sound
            self._scale(replicaset, replicas - broken - sound)

    def _clean_up(self, deployment: Object, newest: Object | None, old: list[Object]) -> None:
        """Keep `revisionHistoryLimit` empty old ReplicaSets."""
        if newest is None:
            return
        empty = [rs for rs in old if not rs["spec"]["replicas"] and not _count(rs, "replicas")]
        empty.sort(key=lambda rs: int((meta(rs).get("annotations") or {}).get(REVISION, 0)))
        keep = deployment["spec"].get("revisionHistoryLimit", 10)
        for replicaset in empty[: max(len(empty) - keep, 0)]:
            if not meta(replicaset).get("deletionTimestamp"):
                self._store.delete(REPLICASET, namespace_of(replicaset), name_of(replicaset))


def template_hash(deployment: Object) -> str:
    """The pod-template-hash of the Deployment's template: letters that spell no words."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    letters = []
    for _ in range(10):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)


def _count(replicaset: Object, name: str) -> int:
    return int((replicaset.get("status") or {}).get(name, 0))


def _hash_of(replicaset: Object) -> str:
    return str((meta(replicaset).get("labels") or {}).get(HASH_LABEL, ""))


def _last_revision(replicasets: list[Object]) -> int:
    numbers = [int((meta(rs).get("annotations") or {}).get(REVISION, 0)) for rs in replicasets]
    return max(numbers, default=0)


async def run(store: Store, clock: Clock) -> None:
    """Reconcile Deployments until cancelled."""
    controller = DeploymentController(store, clock)
    try:
        await run_controller(
            store,
            clock,
            name="deployment",
            first=[(namespace_of(d), name_of(d)) for d in store.list(DEPLOYMENT)],
            keys_of=controller.keys_of,
            sync=controller.sync,
        )
    finally:
        controller.close()
