"""One kubelet's part in its node: registration, Ready, devices, heartbeats."""

from __future__ import annotations

from controlplane.sandbox.clock import Clock, parse_rfc3339, rfc3339_micro
from controlplane.sandbox.controllers.nodes import LEASE_NAMESPACE
from controlplane.sandbox.controllers.pods import condition_of, is_true, set_condition
from controlplane.sandbox.emulator import NODE_STATE, Settings
from controlplane.sandbox.emulator.fleet import DEVICES_ANNOTATION
from controlplane.sandbox.kinds import LEASE, NODE
from controlplane.sandbox.objects import Object, clone, meta, name_of
from controlplane.sandbox.store import Store

_LEASE_SECONDS = 40


def is_ours(node: Object) -> bool:
    """Whether the emulator runs this node's kubelet: all that it registered, no others."""
    return DEVICES_ANNOTATION in (meta(node).get("annotations") or {})


def state_of(node: Object) -> str:
    """What NODE_STATE asks for: "", "not-ready" or "unreachable"."""
    return str((meta(node).get("annotations") or {}).get(NODE_STATE) or "")


class NodeAgent:
    """All emulated kubelets' node status."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._ready_at: dict[str, float] = {}

    def sync(self, name: str) -> float | None:
        """Boot the node step by step; when the next step is due."""
        node = self._store.find(NODE, None, name)
        if node is None or not is_ours(node):
            self._ready_at.pop(name, None)
            return None
        state = state_of(node)
        if state == "unreachable":
            return None
        now = self._clock.now()
        renew_at = self._heartbeat(name, now)
        if state == "not-ready":
            why = "container runtime is down"
            self._post(node, "False", "KubeletNotReady", why, now)
            return renew_at
        next_step = self._boot(node, now)
        return min(filter(None, (renew_at, next_step)))

    def _boot(self, node: Object, now: float) -> float | None:
        name = name_of(node)
        if not is_true(node, "Ready") and not self._told_otherwise(node):
            due = self._ready_at.setdefault(name, now + self._settings.node_boot)
            if now < due:
                return due
            node = self._post(node, "True", "KubeletReady", "kubelet is posting ready status", now)
        since = self._ready_at.get(name)
        if since is not None and now < since + self._settings.device_boot:
            return since + self._settings.device_boot
        self._register_devices(node)
        return None

    @staticmethod
    def _told_otherwise(node: Object) -> bool:
        """A Ready=False that isn't ours was written by somebody who wants it so."""
        ready = condition_of(node, "Ready") or {}
        ours = ("KubeletNotReady", "NodeStatusUnknown", None)
        return ready.get("status") == "False" and ready.get("reason") not in ours

    def _post(self, node: Object, value: str, reason: str, message: str, now: float) -> Object:
        if (condition_of(node, "Ready") or {}).get("status") == value:
            return node
        new = clone(node)
        set_condition(new["status"], "Ready", value, reason, message, now)
        return self._store.update(NODE, new, subresource="status")

    def _register_devices(self, node: Object) -> None:
        """The device plugin is up: its resource gets a capacity."""
        resource, _, count = meta(node)["annotations"][DEVICES_ANNOTATION].partition("=")
        status = node.get("status") or {}
        if not resource or resource in (status.get("capacity") or {}):
            return
        new = clone(node)
        for group in ("capacity", "allocatable"):
            new["status"].setdefault(group, {})[resource] = count
        self._store.update(NODE, new, subresource="status")

    def _heartbeat(self, name: str, now: float) -> float:
        """Renew the node's lease if it is time; when it will be."""
        lease = self._store.find(LEASE, LEASE_NAMESPACE, name)
        if lease is None:
            spec = {
                "holderIdentity": name,
                "leaseDurationSeconds": _LEASE_SECONDS,
                "renewTime": rfc3339_micro(now),
            }
            owner = {
                "apiVersion": "v1",
                "kind": "Node",
                "name": name,
                "uid": meta(self._store.get(NODE, None, name))["uid"],
            }
            metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            self._store.create(LEASE, {"metadata": metadata, "spec": spec})
            return now + self._settings.heartbeat
        due = parse_rfc3339(lease["spec"]["renewTime"]) + self._settings.heartbeat
        if now < due - 0.01:
            return due
        new = clone(lease)
        new["spec"]["renewTime"] = rfc3339_micro(now)
        self._store.update(LEASE, new)
        return now + self._settings.heartbeat
