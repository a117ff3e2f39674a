"""Topology domains: pods of a job within one block, rack or host, or at least in as few as can be.

A level is a node label; its values are the domains (Kueue's Topology Aware Scheduling, KEP-2724).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controlplane.engine.nodetable import Column, NodeTable


@dataclass(frozen=True, slots=True)
class Within:
    """`level`: the node label. `required`: all in one domain or not at all. `domain`: the one that
    the job is in already."""

    level: str
    required: bool
    domain: str | None = None


def nodes_within(table: NodeTable, fits: Column, pods: int, within: Within) -> Column | None:
    """`fits` (pods that each node takes) narrowed to the nodes to use for `pods` pods.

    The domain that the job is in, else the one with the least room that holds them all: large
    rooms are kept. If none does: None when that is required, else the roomiest domains first.
    """
    domains, names = table.domains(within.level)
    inside = domains >= 0
    room = np.bincount(domains[inside], weights=fits[inside], minlength=len(names)).astype(np.int64)
    if within.domain is not None and within.domain in names:
        home = names.index(within.domain)
        if room[home] >= pods or within.required:
            return np.where(domains == home, fits, 0) if room[home] >= pods else None
    able = np.flatnonzero(room >= pods)
    if len(able):
        best = able[np.argmin(room[able])]
        return np.where(domains == best, fits, 0)
    return None if within.required else _roomiest(domains, room, fits, pods)


def _roomiest(domains: Column, room: Column, fits: Column, pods: int) -> Column:
    """The fewest domains that hold the pods together; nodes outside of any come last."""
    chosen = np.zeros(len(fits), dtype=bool)
    missing = pods
    for domain in np.argsort(-room, kind="stable"):
        if missing <= 0:
            break
        chosen |= domains == domain
        missing -= int(room[domain])
    if missing > 0:
        return fits
    return np.where(chosen, fits, 0)
