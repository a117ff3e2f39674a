"""Completion indexes of Indexed Jobs: reading, writing, choosing.

Source: k8s.io/kubernetes `pkg/controller/job/indexed_job_utils.go`.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.sandbox.controllers.pods import leaving_first
from controlplane.sandbox.objects import Object, meta

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Object) -> int | None:
    """The pod's completion index, or None when it carries none that can be read."""
    text = (meta(pod).get("annotations") or {}).get(COMPLETION_INDEX, "")
    return int(text) if text.isdecimal() else None


def parse(text: str | None, below: int) -> set[int]:
    """`0-3,5` as a set, without what isn't below `below`."""
    found: set[int] = set()
    for part in filter(None, (text or "").split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), below - 1) + 1))
    return found


def written(indexes: Iterable[int]) -> str:
    """The canonical text: `0-3,5`; two neighbours are `4,5`, as the real controller writes."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(_part(first, last) for first, last in parts)


def _part(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def lowest_free(taken: set[int], completions: int, count: int) -> list[int]:
    """The `count` lowest indexes that nobody has, fewer when there are fewer."""
    free: list[int] = []
    for index in range(completions):
        if len(free) == count:
            break
        if index not in taken:
            free.append(index)
    return free


def surplus(pods: list[Object], completions: int, at_least: int) -> list[Object]:
    """The active pods that leave: out of range (KEP-3715), doubled indexes, then `at_least`."""
    leaving: list[Object] = []
    staying: list[Object] = []
    by_index: dict[int | None, list[Object]] = {}
    for pod in pods:
        by_index.setdefault(index_of(pod), []).append(pod)
    for index, group in by_index.items():
        if index is None or index >= completions:
            leaving += group
        elif len(group) == 1:
            staying += group
        else:
            *doubled, kept = leaving_first(group)
            leaving += doubled
            staying.append(kept)
    if len(leaving) < at_least:
        leaving += leaving_first(staying, pods)[: at_least - len(leaving)]
    return leaving
