"""Nodes of a virtual cluster."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.engine.snapshot import Node


def machine(
    name: str,
    pool: str,
    resource: str,
    accelerators: int,
    *,
    cpu: int,
    memory: int,
    labels: Mapping[str, str],
) -> Node:
    """A node that is ready and empty. `cpu` in millicores, `memory` in bytes."""
    amounts = {resource: accelerators, "cpu": cpu, "memory": memory}
    there = {key: n for key, n in amounts.items() if n}
    return Node(
        name=name,
        uid=f"uid-{name}",
        pool=pool,
        labels={"kubernetes.io/hostname": name, **labels},
        taints=(),
        ready=True,
        unschedulable=False,
        capacity=there,
        allocatable=there,
    )
