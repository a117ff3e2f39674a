"""What would unblock each demand that still waits at the end of a cycle (`unblock`), once for all
that are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from controlplane.engine.blockers import Column, NodeColumns
from controlplane.engine.jobs import Job
from controlplane.engine.nodetable import NodeTable
from controlplane.engine.ordering import DemandKind
from controlplane.engine.pending import Served
from controlplane.engine.placement import Capacity
from controlplane.engine.reasons import Reason, ReasonCode
from controlplane.engine.replicas import Replicas
from controlplane.engine.surplus import Donors
from controlplane.engine.types import ReclaimPolicy
from controlplane.engine.unblock import Missing, Remedies

#: resource -> positions of nodes, and what the pods that would leave hold there
Gift = dict[str, tuple[list[int], list[int]]]
#: job -> what its gift was reckoned from, and the gift
Gifts = dict[str, tuple[tuple[Replicas, int, int], Gift]]

_NOTHING: tuple[list[int], list[int]] = ([], [])


class Explainer:
    """Keeps what it knows of the nodes from one cycle to the next."""

    def __init__(self) -> None:
        self._known: tuple[NodeTable, frozenset[str], NodeColumns] | None = None
        self._gifts: dict[bool, Gifts] = {False: {}, True: {}}

    def remedies(
        self,
        found: Iterable[Served],
        jobs: Sequence[Job],
        capacity: Capacity,
        closed: Iterable[str],
    ) -> list[tuple[Reason, ...]]:
        """For each demand, in order, what would help; () for one that has its places."""
        nodes = self._nodes(capacity, frozenset(closed))
        donors = {
            whole: _JobDonors(jobs, nodes, whole, self._gifts[whole]) for whole in (False, True)
        }
        remedies = Remedies(nodes, capacity.later, donors)
        said: dict[Missing, tuple[Reason, ...]] = {}
        answers: list[tuple[Reason, ...]] = []
        for served in found:
            if not waits(served):
                answers.append(())
                continue
            missing = missing_of(served, capacity)
            if missing not in said:
                said[missing] = remedies.for_(missing)
            answers.append(said[missing])
        return answers

    def _nodes(self, capacity: Capacity, closed: frozenset[str]) -> NodeColumns:
        known = self._known
        if known is None or known[0] is not capacity.table or known[1] != closed:
            if known is None or known[0].names != capacity.table.names:
                self._gifts = {False: {}, True: {}}  # nodes have other places
            known = (capacity.table, closed, NodeColumns(capacity.table, closed))
            self._known = known
        return known[2]


def waits(served: Served) -> bool:
    """Whether it has no places, and something could be done about that."""
    held_back = served.held_back
    if held_back is not None:
        return held_back.code is ReasonCode.WAITS_FOR_QUOTA
    return served.lacking > 0 and not served.deferred


def missing_of(served: Served, capacity: Capacity) -> Missing:
    demand = served.demand
    job = demand.job
    size = demand.pods_per_unit
    start = job is not None and demand.kind is DemandKind.START
    per_replica = job.pods_per_replica if job is not None else 1
    reclaims = demand.reclaims
    return Missing(
        name="",  # the answer is the same for all that are alike
        priority=demand.priority,
        priority_class=demand.priority_class,
        shape=demand.shape,
        pods=served.units * size,
        pods_together=size,
        placed=(served.units - served.lacking) * size,
        queue=demand.queue,
        quota_missing=served.quota_missing,
        reclaim=ReclaimPolicy.NEVER if demand.above_minimum else reclaims,
        minimum=job.minimum if job is not None and start else None,
        pods_per_replica=per_replica,
        # a smaller start is no help while quota is the obstacle
        could_start_with=(
            capacity.fitting(demand.shape, size, demand.within) // per_replica
            if start and not served.quota_missing
            else 0
        ),
        level=demand.within.level if demand.within and demand.within.required else "",
        domain=(demand.within.domain or "") if demand.within and demand.within.required else "",
    )


class _JobDonors(Donors):
    """What the cycle's jobs could still give, after everything that was decided. `gifts`: what is
    known of jobs that haven't changed since the last cycle."""

    def __init__(self, jobs: Sequence[Job], nodes: NodeColumns, whole: bool, gifts: Gifts) -> None:
        able = [job for job in jobs if job.sizes and job.target and not job.workload.suspended]
        self._able = sorted(able, key=lambda job: (job.workload.priority, job.name))
        super().__init__((), nodes, whole)
        self.names = [job.name for job in self._able]
        self._order = [job.workload.priority for job in self._able]
        self.priorities = sorted(set(self._order))
        self._known = gifts

    def _flat(self, resource: str) -> tuple[Column, Column, Column]:
        found = self._gifts.get(resource)
        if found is None:
            who: list[int] = []
            where: list[int] = []
            much: list[int] = []
            for number, job in enumerate(self._able):
                places, amounts = self._gift(job).get(resource, _NOTHING)
                who.extend([number] * len(places))
                where.extend(places)
                much.extend(amounts)
            found = (_column(who), _column(where), _column(much))
            self._gifts[resource] = found
        return found

    def _gift(self, job: Job) -> Gift:
        known = self._known.get(job.name)
        floor = 0 if self._whole else job.minimum
        of = (job.replicas, job.target, floor)
        if known is not None and known[0] == of:
            return known[1]
        gift: Gift = {}
        for pod in job.freed_by(job.target, floor):
            if pod.node not in self._nodes.position:
                continue
            for resource, n in pod.requests.items():
                places, amounts = gift.setdefault(resource, ([], []))
                places.append(self._nodes.position[pod.node])
                amounts.append(n)
        self._known[job.name] = (of, gift)
        return gift


def _column(values: list[int]) -> Column:
    return np.array(values, dtype=np.int64)
