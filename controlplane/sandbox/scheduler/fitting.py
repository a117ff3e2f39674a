"""Which node takes a pod, and why the others don't.

A cycle places pods one after the other. Within it capacity only shrinks, so each equivalence
class keeps a heap of the nodes that fit it; a node's entries are renewed when a pod lands on it.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.sandbox.objects import Object, meta, name_of
from controlplane.sandbox.scheduler.requests import Amounts, Needs, amounts, is_extended
from controlplane.sandbox.selectors import Requirement

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
_Score = tuple[int, int, int, str]


@dataclass(slots=True)
class NodeState:
    """One node: what it offers, and what the pods on it hold. `stamp` counts placements."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()
    unschedulable: bool = False
    allocatable: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    pods: int = 0
    stamp: int = 0

    @classmethod
    def of(cls, node: Object) -> NodeState:
        spec, status = node.get("spec") or {}, node.get("status") or {}
        taints = [
            (taint["key"], taint.get("value") or "", taint["effect"])
            for taint in spec.get("taints") or ()
        ]
        return cls(
            name=name_of(node),
            labels=meta(node).get("labels") or {},
            taints=tuple(taints),
            unschedulable=bool(spec.get("unschedulable")),
            allocatable=amounts(status.get("allocatable") or {}),
        )

    def offers_as(self, other: NodeState) -> bool:
        """Whether both take the same pods, usage apart."""
        return (
            self.labels == other.labels
            and self.taints == other.taints
            and self.unschedulable == other.unschedulable
            and self.allocatable == other.allocatable
        )

    def add(self, requests: Iterable[tuple[str, int]], sign: int = 1) -> None:
        """Account one pod, or with sign -1 its end."""
        self.pods += sign
        self.stamp += 1
        for name, amount in requests:
            self.used[name] = self.used.get(name, 0) + sign * amount

    def free(self, resource: str) -> int:
        """What is left of a resource; 0 of one that the node doesn't have."""
        return self.allocatable.get(resource, 0) - self.used.get(resource, 0)


class Cycle:
    """One pass over the pending pods; `place` accounts what it returns."""

    def __init__(self, nodes: dict[str, NodeState]) -> None:
        self._nodes = nodes
        self._heaps: dict[Needs, list[tuple[_Score, int]]] = {}

    def place(self, needs: Needs) -> str | None:
        """The best node for one more pod of this class, now taken; None when no node fits.

        Best is what fragments least: the node with the fewest devices left over afterwards.
        """
        heap = self._heaps.get(needs)
        if heap is None:
            heap = self._heaps[needs] = self._candidates(needs)
        while heap:
            score, stamp = heapq.heappop(heap)
            node = self._nodes[score[-1]]
            if stamp == node.stamp:
                node.add(needs.requests)
                self._renew(node)
                return node.name
        return None

    def _candidates(self, needs: Needs) -> list[tuple[_Score, int]]:
        found = [
            (score(node, needs), node.stamp)
            for node in self._nodes.values()
            if fits(node, needs) and refusal(node, needs) is None
        ]
        heapq.heapify(found)
        return found

    def _renew(self, node: NodeState) -> None:
        for needs, heap in self._heaps.items():
            if fits(node, needs) and refusal(node, needs) is None:
                heapq.heappush(heap, (score(node, needs), node.stamp))


def score(node: NodeState, needs: Needs) -> _Score:
    """Lower is better: soft taints, devices left over, cpu left over, name."""
    soft = sum(
        taint[2] == "PreferNoSchedule" and not tolerated(taint, needs) for taint in node.taints
    )
    wanted = needs.accelerators
    if wanted:
        left = sum(node.free(name) - amount for name, amount in wanted)
    else:  # work without devices stays off nodes that have some
        left = sum(amount for name, amount in node.allocatable.items() if is_extended(name))
    return (soft, left, node.free("cpu"), node.name)


def fits(node: NodeState, needs: Needs) -> bool:
    """Whether the node has what the pod requests."""
    if node.pods >= node.allocatable.get("pods", 0):
        return False
    return all(amount <= node.free(name) for name, amount in needs.requests)


def refusal(node: NodeState, needs: Needs) -> str | None:
    """Why the node takes no such pod whatever it has free, in the scheduler's words."""
    cordon = (UNSCHEDULABLE_TAINT, "", "NoSchedule")
    if node.unschedulable and not tolerated(cordon, needs):
        return "node(s) were unschedulable"
    for taint in node.taints:
        if taint[2] != "PreferNoSchedule" and not tolerated(taint, needs):
            return f"node(s) had untolerated taint {{{taint[0]}: {taint[1]}}}"
    if not selected(node, needs):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def shortages(node: NodeState, needs: Needs) -> list[str]:
    """What the node has too little of, in the scheduler's words."""
    short = ["Too many pods"] if node.pods >= node.allocatable.get("pods", 0) else []
    return short + [
        f"Insufficient {name}" for name, amount in needs.requests if amount > node.free(name)
    ]


def explain(nodes: Iterable[NodeState], needs: Needs, preemption: str) -> str:
    """The message of PodScheduled=False, as kube-scheduler's FitError words it.

    `preemption`: the pod's preemptionPolicy.
    """
    counts: Counter[str] = Counter()
    total = 0
    for node in nodes:
        total += 1
        refused = refusal(node, needs)
        counts.update([refused] if refused else shortages(node, needs))
    if not total:
        return "no nodes available to schedule pods"
    why = (
        "not eligible due to preemptionPolicy=Never"
        if preemption == "Never"
        else "this scheduler never preempts"
    )
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{total} nodes are available: {reasons}. preemption: {why}."


def tolerated(taint: tuple[str, str, str], needs: Needs) -> bool:
    """Whether one of the pod's tolerations matches (v1 `Toleration.ToleratesTaint`)."""
    return any(tolerates(toleration, taint) for toleration in needs.tolerations)


def tolerates(toleration: tuple[str, str, str, str], taint: tuple[str, str, str]) -> bool:
    """`toleration`: (key, operator, value, effect); `taint`: (key, value, effect)."""
    key, operator, value, effect = toleration
    if effect and effect != taint[2]:
        return False
    if key and key != taint[0]:
        return False
    return operator == "Exists" or (operator == "Equal" and bool(key) and value == taint[1])


def selected(node: NodeState, needs: Needs) -> bool:
    """Node selector and required node affinity: any term, all of its expressions."""
    if any(node.labels.get(key) != value for key, value in needs.node_selector):
        return False
    if not needs.affinity:
        return True
    return any(_term_matches(node, term) for term in json.loads(needs.affinity))


def _term_matches(node: NodeState, term: Object) -> bool:
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    own = {"metadata.name": node.name}
    return all(_requirement(e).matches(node.labels) for e in labels) and all(
        _requirement(e).matches(own) for e in fields
    )


def _requirement(expression: Object) -> Requirement:
    values = tuple(expression.get("values") or ())
    return Requirement(expression["key"], expression["operator"], values)
