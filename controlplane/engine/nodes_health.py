"""Nodes that nothing new should go to, pods that hang on theirs, and which pods leave first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.decisions import Notice
from controlplane.engine.placement import is_accelerator
from controlplane.engine.reasons import Reason, ReasonCode, because
from controlplane.engine.snapshot import Node, NodeHistory, Pod
from controlplane.engine.types import PodPhase


class Leaving(IntEnum):
    """Why a pod leaves before others when its workload shrinks, the strongest cause first."""

    NODE_GONE = 0
    NODE_NOT_READY = 1
    NODE_DEPARTS = 2
    NODE_CORDONED = 3
    DEVICE_UNHEALTHY = 4
    NODE_OFFENDS = 5
    NO_CAUSE = 6


def avoided(
    nodes: Iterable[Node],
    node_history: Mapping[str, NodeHistory],
    policy: ClusterPolicy,
    now: float,
) -> dict[str, Reason]:
    """Nodes that get no new pods though Kubernetes would take them, by name, with the reason: those
    whose announced departure is at most `departure_notice_s` away (or may come at any moment), and
    repeat offenders. What isn't ready or is cordoned takes nothing anyhow, and is named only for
    these reasons."""
    found: dict[str, Reason] = {}
    for node in nodes:
        leaves = _departs_from(node, policy)
        if leaves is not None and leaves <= now and node.departure is not None:
            found[node.name] = because(
                ReasonCode.NODE_DEPARTS, kind=node.departure.kind, source=node.departure.source
            )
            continue
        faults, until = offence(node_history.get(node.name, NodeHistory()), policy, now)
        if until is not None:
            found[node.name] = because(
                ReasonCode.REPEAT_OFFENDER,
                faults=faults,
                window_s=policy.offender_window_s,
                rest_s=float(until - now),
            )
    return found


def offence(history: NodeHistory, policy: ClusterPolicy, now: float) -> tuple[int, float | None]:
    """(faults that count, until when a node is avoided for them; None: it isn't). Those count that
    lie within `offender_window_s` before the last; `offender_faults` of 0 turns it off."""
    past = [at for at in history.faults if at <= now]
    if not past or policy.offender_faults <= 0:
        return 0, None
    counted = sum(past[-1] - at <= policy.offender_window_s for at in past)
    until = past[-1] + policy.offender_rest_s
    return counted, until if counted >= policy.offender_faults and until > now else None


def next_change(
    nodes: Iterable[Node],
    node_history: Mapping[str, NodeHistory],
    policy: ClusterPolicy,
    now: float,
) -> float | None:
    """When after `now` time alone changes what `avoided` says, unix seconds; None: never."""
    due: list[float] = []
    for node in nodes:
        leaves = _departs_from(node, policy)
        if leaves is not None and now < leaves:
            due.append(leaves)
        _, until = offence(node_history.get(node.name, NodeHistory()), policy, now)
        if until is not None:
            due.append(until)
    return min(due, default=None)


def overdue(pods: Iterable[Pod], policy: ClusterPolicy, now: float) -> list[Notice]:
    """A notice for each pod that still holds accelerators `terminating_timeout_s` after it should
    have gone, in order of their names."""
    found = []
    for pod in pods:
        if pod.deletion_due is None or pod.node is None:
            continue
        if pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            continue
        late = now - pod.deletion_due
        held = sorted((r, n) for r, n in pod.requests.items() if n > 0 and is_accelerator(r))
        if late < policy.terminating_timeout_s or not held:
            continue
        resource, n = held[0]
        reason = because(
            ReasonCode.HANGS_TERMINATING,
            late_s=round(late), accelerators=n, resource=resource, node=pod.node,
        )  # fmt: skip
        found.append(Notice(f"Pod/{pod.namespace}/{pod.name}", reason))
    return sorted(found, key=lambda notice: notice.subject)


def next_overdue(pods: Iterable[Pod], policy: ClusterPolicy, now: float) -> float | None:
    """When after `now` the next pod hangs, if it hasn't gone by then; None: none is leaving."""
    due = (
        pod.deletion_due + policy.terminating_timeout_s
        for pod in pods
        if pod.deletion_due is not None
    )
    return min((at for at in due if at > now), default=None)


def causes_of(nodes: Sequence[Node], avoided: Mapping[str, Reason]) -> dict[str, Leaving]:
    """Each node's cause for its pods to leave first, by name; `avoided` as the function of this
    name says. Made once a cycle, for `leaving_first`."""
    return {node.name: _cause(node, avoided.get(node.name)) for node in nodes}


def leaving_first(pod: Pod, causes: Mapping[str, Leaving]) -> Leaving:
    """The rank of a pod among those of its workload that could leave: the lowest goes first. A pod
    that waits for a place has no cause of its own."""
    if pod.node is None:
        return Leaving.NO_CAUSE
    return causes.get(pod.node, Leaving.NODE_GONE)


def _departs_from(node: Node, policy: ClusterPolicy) -> float | None:
    """From when on a node counts as leaving; None: nothing was announced."""
    if node.departure is None:
        return None
    if node.departure.at is None:
        return float("-inf")
    return node.departure.at - policy.departure_notice_s


def _cause(node: Node, why: Reason | None) -> Leaving:
    if not node.ready:
        return Leaving.NODE_NOT_READY
    if why is not None and why.code is ReasonCode.NODE_DEPARTS:
        return Leaving.NODE_DEPARTS
    if node.unschedulable:
        return Leaving.NODE_CORDONED
    if any(n > 0 for n in node.unhealthy.values()):
        return Leaving.DEVICE_UNHEALTHY
    return Leaving.NO_CAUSE if why is None else Leaving.NODE_OFFENDS
