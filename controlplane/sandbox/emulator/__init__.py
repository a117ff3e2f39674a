"""The nodes of the sandbox cluster: their heartbeats, devices, pods, and local processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """How the emulated kubelets behave; times in seconds.

    `folder`: the containers' logs go to `folder/logs`. `boot` and `stop`: what an emulated pod
    takes to be ready, and to end after SIGTERM, unless its annotations say otherwise.
    `restart_first`, `restart_last`: the crash back-off of containers (a real kubelet's is 10 s to
    5 min). `node_boot`, `device_boot`: from a node's registration to Ready, and from then to its
    device plugin. `heartbeat`: between two renewals of a node's lease.
    """

    folder: Path
    boot: float = 1.5
    stop: float = 1.0
    restart_first: float = 1.0
    restart_last: float = 10.0
    node_boot: float = 0.5
    device_boot: float = 1.5
    heartbeat: float = 10.0


# annotations on a pod
RUN = "sandbox.concertina.dev/run"  # "local": the containers are processes on this machine
BOOT_SECONDS = "sandbox.concertina.dev/boot-seconds"
STOP_SECONDS = "sandbox.concertina.dev/stop-seconds"
EXIT_AFTER = "sandbox.concertina.dev/exit-after"  # seconds of running, then the container ends
EXIT_CODE = "sandbox.concertina.dev/exit-code"  # with this code, default 0
# annotation on a node: "not-ready", or "unreachable" (its kubelet falls silent)
NODE_STATE = "sandbox.concertina.dev/node"
