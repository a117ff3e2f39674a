"""AWS Neuron: the same devices under three names, counted once, in whole devices.

A node advertises `neuron` and `neurondevice` (devices) and `neuroncore` (their cores) at once, and
the scheduler keeps three independent accounts of them: a pod that takes cores takes devices away
without its showing. Source: AWS Neuron, "Neuron device plugin"; a device has 2 cores (Inferentia2,
Trainium1) or 8 (Trainium2): what a node advertises tells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from controlplane.cluster.names import NEURON, NEURON_CORE, NEURON_DEVICE
from controlplane.engine.snapshot import Pod
from controlplane.engine.types import PodPhase

_ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


def one_name(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts in which devices have one name. Cores stay: what they are of depends on the node."""
    found = dict(amounts)
    devices = found.pop(NEURON_DEVICE, 0)
    if devices:
        found[NEURON] = max(found.get(NEURON, 0), devices)
    return found


def cores_per_device(capacity: Mapping[str, int]) -> int | None:
    """Of a node, from what it advertises under `one_name`; None where it doesn't show both."""
    devices, cores = capacity.get(NEURON, 0), capacity.get(NEURON_CORE, 0)
    return max(1, cores // devices) if devices and cores else None


def in_devices(pods: Iterable[Pod], ratios: Mapping[str, int]) -> list[Pod]:
    """The pods with cores turned into whole devices. `ratios`: node -> cores of a device.

    On a node, in order of the pods' names, a pod gets the devices that its cores add to those begun
    before it, so that their sum is exact. A pod without a place is rounded up by itself, with the
    fewest cores that a device has anywhere.
    """
    found = list(pods)
    if not ratios or not any(NEURON_CORE in pod.requests for pod in found):
        return found
    begun: dict[str, int] = {}
    for i, pod in sorted(enumerate(found), key=lambda at: (at[1].namespace, at[1].name)):
        cores = pod.requests.get(NEURON_CORE, 0)
        ratio = ratios.get(pod.node) if pod.node else min(ratios.values())
        if not cores or ratio is None:
            continue
        before = begun.get(pod.node, 0) if pod.node else 0
        if pod.node and pod.phase not in _ENDED:
            begun[pod.node] = before + cores
        devices = _up(before + cores, ratio) - _up(before, ratio)
        requests = {name: n for name, n in pod.requests.items() if name != NEURON_CORE}
        if devices:
            requests[NEURON] = requests.get(NEURON, 0) + devices
        found[i] = dataclasses.replace(pod, requests=requests)
    return found


def _up(cores: int, ratio: int) -> int:
    """Whole devices that hold so many cores."""
    return -(-cores // ratio)
