"""The only place that picks the cluster client and the clock.

Below it nothing knows which client is in use; above it nothing imports `cluster.client`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from controlplane.cluster.interface import Cluster, ClusterAddress

Clock = Callable[[], float]


class ClusterRow(Protocol):
    """What a connection needs of `apps.clusters.models.Cluster`."""

    name: str
    kubeconfig_path: str
    context: str
    in_cluster: bool


_connections: dict[ClusterAddress, tuple[int, Cluster]] = {}
_lock = threading.Lock()


def clock() -> Clock:
    """Unix seconds now."""
    return time.time


def address_of(row: ClusterRow) -> ClusterAddress:
    return ClusterAddress(
        name=row.name,
        kubeconfig_path=row.kubeconfig_path,
        context=row.context,
        in_cluster=row.in_cluster,
    )


def revision(address: ClusterAddress) -> int:
    """Changes when the kubeconfig's file does: a connection made before then may be to the wrong
    place, or with credentials that no longer serve. 0 where there is no file to look at."""
    try:
        return Path(address.kubeconfig_path).stat().st_mtime_ns if address.kubeconfig_path else 0
    except OSError:
        return 0


def cluster_for(row: ClusterRow) -> Cluster:
    """This process's connection to a cluster, kept while its kubeconfig stays the same.

    Raises Invalid for a kubeconfig that can't be used.
    """
    address = address_of(row)
    now = revision(address)
    with _lock:
        made, found = _connections.get(address, (-1, None))
        if found is None or made != now:
            if found is not None:
                found.close()
            found = connect(address)
            _connections[address] = (now, found)
        return found


def connect(address: ClusterAddress) -> Cluster:
    """A connection of its own (the watcher's: its rate limit is not shared with the tasks)."""
    from controlplane.cluster import client

    return client.connect(address)


def signal_pod(row: ClusterRow, namespace: str, name: str, signal: str) -> None:
    """Fault injection in a sandbox: send `signal` (KILL, TERM, STOP, CONT) to a pod.

    Raises NotFound when there is no such pod, or the cluster isn't a sandbox.
    """
    cluster_for(row).signal_pod(namespace, name, signal)


def forget() -> None:
    """Drop the connections without closing them (after a fork they are the parent's)."""
    with _lock:
        _connections.clear()
