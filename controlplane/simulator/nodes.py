"""Nodes fail, come back, are cordoned and drained."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from controlplane.engine.snapshot import Departure
from controlplane.simulator.spec import NodeEvent

if TYPE_CHECKING:
    from controlplane.simulator.run import Simulation


class NodeLife:
    """`capacity`: accelerators of nodes that are ready."""

    def __init__(self, simulation: Simulation, seed: int) -> None:
        self._simulation = simulation
        self._random = random.Random(seed)
        self._down: dict[str, int] = {}
        self._taken: set[str] = set()
        self._resource = simulation.scenario.resource
        self.capacity = sum(
            node.allocatable.get(self._resource, 0)
            for node in simulation.scenario.nodes
            if node.ready
        )

    def fill_agenda(self) -> None:
        """Listed events, and the first random failure of each node."""
        scenario = self._simulation.scenario
        for event in scenario.events:
            self._simulation.agenda.at(scenario.start + event.at_s, self.happen, event)
        if scenario.faults.mtbf_s is not None:
            for node in scenario.nodes:
                self._fail_later(node.name)

    def took(self, uids: frozenset[str]) -> bool:
        """Whether one of these pods was lost to its node."""
        return not self._taken.isdisjoint(uids)

    def happen(self, event: NodeEvent) -> None:
        match event.kind:
            case "fail":
                self.fail(event.node, event.duration_s)
            case "recover":
                self.recover(event.node)
            case "cordon":
                self._simulation.cluster.set_node(event.node, unschedulable=True)
            case "uncordon":
                self._simulation.cluster.set_node(event.node, unschedulable=False)
            case "drain":
                self._drain(event)
        self._simulation.event()

    def fail(self, name: str, duration_s: float) -> None:
        """The node goes; its pods stop at once and are replaced after `eviction_s`."""
        simulation = self._simulation
        cluster, now = simulation.cluster, simulation.now
        if not cluster.nodes[name].ready:
            return
        self._down[name] = self._down.get(name, 0) + 1
        self.capacity -= cluster.nodes[name].allocatable.get(self._resource, 0)
        cluster.set_node(name, ready=False, now=now)
        pods = list(cluster.on_node[name].values())
        if any(pod.workload in cluster.jobs for pod in pods):
            cluster.hurt(name, now)
        for pod in pods:
            self._taken.add(pod.uid)
            cluster.set_ready(pod.uid, False)
        evict_at = now + simulation.costs.eviction_s
        simulation.agenda.at(evict_at, self._evict, name, self._down[name])
        if duration_s < math.inf:
            simulation.agenda.at(now + duration_s, self._back, name, self._down[name])
        simulation.event()

    def recover(self, name: str) -> None:
        simulation = self._simulation
        node = simulation.cluster.nodes[name]
        if node.ready and not node.unschedulable:
            return
        if not node.ready:
            self.capacity += node.allocatable.get(self._resource, 0)
        self._down[name] = self._down.get(name, 0) + 1
        simulation.cluster.set_node(name, ready=True, unschedulable=False)
        for pod in list(simulation.cluster.on_node[name].values()):
            simulation.agenda.at(
                simulation.now + simulation.costs.pod_start_s, simulation.pod_ready, pod.uid
            )
        simulation.event()

    # -- inside ----------------------------------------------------------------------------------

    def _back(self, name: str, outage: int) -> None:
        if self._down.get(name) == outage:
            self.recover(name)

    def _evict(self, name: str, outage: int) -> None:
        """Pods of a node that is still down are given up; their workloads make new ones."""
        if self._down.get(name) == outage:
            self._replace(name)
            self._simulation.event()

    def _drain(self, event: NodeEvent) -> None:
        simulation = self._simulation
        leaves = simulation.now + event.notice_s
        self._down[event.node] = self._down.get(event.node, 0) + 1
        simulation.cluster.set_node(
            event.node, unschedulable=True, departure=Departure("drain", leaves, "scenario")
        )
        simulation.agenda.at(leaves, self._evict, event.node, self._down[event.node])
        if event.duration_s < math.inf:
            back = leaves + event.duration_s
            simulation.agenda.at(back, self._back, event.node, self._down[event.node])

    def _replace(self, name: str) -> None:
        simulation = self._simulation
        for pod in list(simulation.cluster.on_node[name].values()):
            simulation.replace_pod(pod)

    def _fail_later(self, name: str) -> None:
        simulation = self._simulation
        mean = simulation.scenario.faults.mtbf_s
        assert mean is not None
        delay = self._random.expovariate(1.0 / mean)
        simulation.agenda.at(simulation.now + delay, self._fail_by_chance, name)

    def _fail_by_chance(self, name: str) -> None:
        simulation = self._simulation
        repair = self._random.expovariate(1.0 / simulation.scenario.faults.mttr_s)
        self.fail(name, repair)
        if not simulation.over():
            self._fail_later(name)
