"""Which nodes a sandbox cluster has: `demo`, or pools as `main=32x8,local=4x1`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from controlplane.sandbox.controllers.nodes import NOT_READY
from controlplane.sandbox.kinds import NODE
from controlplane.sandbox.objects import Object
from controlplane.sandbox.store import Store

GPU, CPU_DEVICE = "nvidia.com/gpu", "concertina.dev/cpu-device"
DEVICES_ANNOTATION = "sandbox.concertina.dev/devices"  # resource=count, for the device plugin
_FORM = re.compile(r"^([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)=(\d+)x(\d+)$")


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are alike. `devices`: how many of `resource` each has."""

    name: str
    nodes: int
    devices: int
    resource: str = GPU
    taint: tuple[str, str, str] | None = None
    cpu: str = "96"
    memory: str = "768Gi"

    def node_names(self) -> list[str]:
        """`main-00` .. `main-31`: as many digits as the last one needs."""
        digits = len(str(max(self.nodes - 1, 0)))
        return [f"{self.name}-{number:0{digits}d}" for number in range(self.nodes)]


# the pool whose pods run as processes on this machine; only work that asks for it goes there
_LOCAL_TAINT = ("concertina.dev/local", "true", "NoSchedule")
DEMO = (
    Pool("main", 32, 8),
    Pool("local", 4, 1, CPU_DEVICE, _LOCAL_TAINT, cpu="8", memory="16Gi"),
)


def parse(text: str) -> tuple[Pool, ...]:
    """`demo`, or pools as NAME=NODESxDEVICES; ValueError says what is wrong and how to write it.

    A pool called `local` has `concertina.dev/cpu-device` and the taint of the demo's.
    """
    if text == "demo":
        return DEMO
    pools = []
    for part in text.split(","):
        found = _FORM.match(part.strip())
        if not found:
            raise ValueError(
                f"--nodes: {part.strip()!r} is not a pool: write demo, or pools as "
                "main=32x8,local=4x1 (name=nodes x accelerators a node)"
            )
        name, nodes, devices = found[1], int(found[2]), int(found[3])
        if name == "local":
            pools.append(Pool(name, nodes, devices, CPU_DEVICE, _LOCAL_TAINT, "8", "16Gi"))
        else:
            pools.append(Pool(name, nodes, devices))
    names = [pool.name for pool in pools]
    if len(set(names)) != len(names):
        raise ValueError(f"--nodes: a pool is named twice in {text!r}: name each pool once")
    return tuple(pools)


def populate(store: Store, pools: tuple[Pool, ...]) -> None:
    """Register the nodes that aren't there; what is there, cordons included, is left alone."""
    for pool in pools:
        for name in pool.node_names():
            if store.find(NODE, None, name) is None:
                store.create(NODE, node_object(pool, name))


def node_object(pool: Pool, name: str) -> Object:
    """A node as its kubelet registers it: not ready, its devices not yet there."""
    labels = {
        "concertina.dev/pool": pool.name,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    if pool.resource == GPU and pool.devices:
        # what feature discovery knows before the device plugin is up
        labels["nvidia.com/gpu.count"] = str(pool.devices)
    taints = [{"key": NOT_READY, "effect": "NoSchedule"}]
    if pool.taint:
        key, value, effect = pool.taint
        taints.append({"key": key, "value": value, "effect": effect})
    capacity = {"cpu": pool.cpu, "memory": pool.memory, "pods": "110"}
    devices = f"{pool.resource}={pool.devices}" if pool.devices else ""
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {DEVICES_ANNOTATION: devices}},
        "spec": {"taints": taints, "providerID": f"sandbox://{name}"},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "sandbox",
                "osImage": "Concertina sandbox",
                "containerRuntimeVersion": "sandbox://1",
                "kubeletVersion": "v1.36.0",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": "KubeletNotReady",
                    "message": "container runtime is starting",
                }
            ],
        },
    }
