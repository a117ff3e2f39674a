"""Scenarios from YAML: the cluster, the work on it, its faults, its policies and its costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.policy import PolicySet
from controlplane.engine.queues import CohortPolicy, QueuePolicy, Quota, problems_of
from controlplane.engine.snapshot import Node
from controlplane.engine.types import Objective, ReclaimPolicy
from controlplane.simulator import curves
from controlplane.simulator.fields import BadInput, Fields
from controlplane.simulator.jobs import Book, damping_of, job_of
from controlplane.simulator.machines import machine
from controlplane.simulator.spec import (
    DAY_S,
    EPOCH,
    HOUR_S,
    NODE_EVENTS,
    Costs,
    Cycle,
    Faults,
    JobSpec,
    NodeEvent,
    PodSpec,
    Scenario,
)
from controlplane.simulator.traces import READERS, Trace

#: scenarios that come with the simulator, by name
SHIPPED = Path(__file__).parent / "scenarios"
#: a scenario without a horizon ends at the latest after so long
LONGEST_S = 400 * DAY_S
MOST_NODES = 100_000


def load(text: str) -> Scenario:
    """A scenario by the path of its file, or by the name of one that comes with the simulator.

    Raises BadInput, naming file, field, value and remedy.
    """
    shipped = SHIPPED / f"{text}.yaml"
    path = Path(text)
    if not path.exists() and shipped.exists():
        path = shipped
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        names = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.yaml")))
        raise BadInput(
            "scenario", text, f"can't be read ({error}); give a file, or one of {names}"
        ) from error
    except yaml.YAMLError as error:
        raise BadInput("scenario", text, f"is no YAML ({error})") from error
    return read(Fields(document, "", str(path)), path.parent, path.stem)


def read(fields: Fields, folder: Path, name: str) -> Scenario:
    """A scenario from its document; paths in it are relative to `folder`."""
    resource = fields.text("resource", "nvidia.com/gpu")
    horizon = fields.number("horizon_h", LONGEST_S / HOUR_S, above=True) * HOUR_S
    traces = [_trace(part, folder) for part in fields.parts("traces")]
    nodes = (*_nodes(fields, resource), *(n for t in traces for n in t.nodes(resource)))
    if not nodes:
        raise fields.bad("pools", "give at least one pool of nodes (or a trace with nodes)")
    book = _book(fields, resource, nodes)
    jobs = [job_of(part, book) for part in fields.parts("jobs")]
    pods = _inference(fields, folder, resource, horizon)
    for trace in traces:
        jobs.extend(trace.jobs(book))
        pods.extend(trace.pods(resource))
    scenario = Scenario(
        name=fields.text("name", name),
        description=fields.text("description", ""),
        nodes=nodes,
        jobs=_unique(jobs, fields),
        pods=tuple(pods),
        events=_events(fields, folder, {node.name for node in nodes}),
        faults=_faults(fields.part("faults")),
        costs=_costs(fields.part("costs")),
        cycle=_cycle(fields.part("cycle")),
        policies=_policies(fields),
        horizon_s=horizon,
        start=_start(fields),
        resource=resource,
        packing=fields.choice("packing", ("packed", "spread"), "packed"),
    )
    fields.done()
    return scenario


# -- parts -------------------------------------------------------------------------------------


def _nodes(fields: Fields, resource: str) -> list[Node]:
    nodes: list[Node] = []
    for pool in fields.parts("pools"):
        name = pool.text("name")
        count = pool.whole("count", least=1, most=MOST_NODES)
        accelerators = pool.whole("accelerators", least=0, most=1024)
        cpu, memory = pool.number("cpu", 1024.0), pool.number("memory_gib", 16_384.0)
        labels = pool.labels("labels")
        pool.done()
        width = len(str(count - 1))
        nodes.extend(
            machine(
                f"{name}-{i:0{width}}",
                name,
                resource,
                accelerators,
                cpu=round(cpu * 1000),
                memory=round(memory * 2**30),
                labels=labels,
            )
            for i in range(count)
        )
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):
        raise fields.bad("pools", "must have names of their own: two pools share one")
    return nodes


def _book(fields: Fields, resource: str, nodes: tuple[Node, ...]) -> Book:
    part = fields.part("model")
    exponent = part.number("exponent", 0.9, above=True, most=2.0)
    loss = part.number("spread_loss", 0.0, most=0.99)
    part.done()
    return Book(
        resource=resource,
        node_size=max(1, *(node.capacity.get(resource, 0) for node in nodes)),
        damping=damping_of(fields.part("elasticity")),
        exponent=exponent,
        spread_loss=loss,
    )


def _unique(jobs: list[JobSpec], fields: Fields) -> tuple[JobSpec, ...]:
    seen: set[str] = set()
    for job in jobs:
        if job.name in seen:
            raise BadInput(
                "jobs", job.name, "is the name of two jobs; names must differ", fields.source
            )
        seen.add(job.name)
    return tuple(jobs)


def _trace(fields: Fields, folder: Path) -> Trace:
    kind = fields.choice("kind", tuple(READERS))
    trace = READERS[kind](fields, folder)
    fields.done()
    return trace


def _inference(fields: Fields, folder: Path, resource: str, horizon: float) -> list[PodSpec]:
    pods: list[PodSpec] = []
    for part in fields.parts("inference"):
        name = part.text("name", "inference")
        each = part.whole("accelerators_per_pod", 1, least=1)
        priority = part.whole("priority", 1000, least=-(10**9), most=10**9)
        group = part.text("priority_class", "inference")
        selector = part.labels("node_selector")
        curve = curves.read_curve(part, folder)
        part.done()

        def make(
            suffix: str, start: float, end: float,
            name: str = name, each: int = each, priority: int = priority,
            group: str = group, selector: Mapping[str, str] = selector,
        ) -> PodSpec:  # fmt: skip
            return PodSpec(
                f"{name}-{suffix}", start, end, {resource: each}, priority, group, name, selector
            )

        pods.extend(curves.pods_of(curve, each, horizon, make))
    return pods


def _events(fields: Fields, folder: Path, names: set[str]) -> tuple[NodeEvent, ...]:
    parts = fields.parts("events")
    if fields.has("events_csv"):
        parts += curves.rows(fields.file("events_csv", folder), ("time_s", "kind", "node"))
    events = []
    for part in parts:
        if part.text("node") not in names:
            raise part.bad("node", f"is no node; they are called like {min(names)}")
        duration = part.optional("duration_s")
        events.append(
            NodeEvent(
                at_s=part.number("time_s"),
                kind=part.choice("kind", NODE_EVENTS),
                node=part.text("node"),
                duration_s=math.inf if duration is None else duration,
                notice_s=part.number("notice_s", 0.0),
            )
        )
        part.done()
    return tuple(sorted(events, key=lambda event: event.at_s))


def _faults(fields: Fields) -> Faults:
    mtbf = fields.optional("mtbf_h")
    found = Faults(
        mtbf_s=mtbf * HOUR_S if mtbf else None, mttr_s=fields.number("mttr_h", 1.0) * HOUR_S
    )
    fields.done()
    return found


def _costs(fields: Fields) -> Costs:
    values: dict[str, Any] = {}
    for item in dataclasses.fields(Costs):
        if item.name == "restart":
            values[item.name] = fields.flag(item.name, False)
        elif item.default is None:
            values[item.name] = fields.optional(item.name)
        else:
            values[item.name] = fields.number(item.name, float(item.default))  # type: ignore[arg-type]
    fields.done()
    return Costs(**values)


def _cycle(fields: Fields) -> Cycle:
    default = Cycle()
    found = Cycle(
        period_s=fields.number("period_s", default.period_s, above=True),
        on_events=fields.flag("on_events", default.on_events),
        delay_s=fields.number("delay_s", default.delay_s),
        follow_ups=fields.whole("follow_ups", default.follow_ups, most=1000),
        rest_s=fields.number("rest_s", default.rest_s),
    )
    fields.done()
    return found


def _start(fields: Fields) -> float:
    """`start`: the date and time of second 0, UTC unless it says otherwise."""
    given = fields.raw("start")
    if given is None:
        return EPOCH
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    except ValueError as error:
        raise fields.bad("start", "must be a date and time such as 2024-01-01T00:00:00Z") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# -- policies ----------------------------------------------------------------------------------


def _policies(fields: Fields) -> PolicySet:
    queues = {name: _queue(name, part) for name, part in fields.named("queues")}
    cohorts = {}
    for name, part in fields.named("cohorts"):
        cohorts[name] = CohortPolicy(name, _quotas(part))
        part.done()
    preemption = {
        name: ReclaimPolicy(fields.part("preemption").choice(name, tuple(ReclaimPolicy)))
        for name in fields.part("preemption").names()
    }
    return PolicySet(
        queues=queues, cohorts=cohorts, preemption=preemption, cluster=_cluster(fields)
    )


def _queue(name: str, fields: Fields) -> QueuePolicy:
    queue = QueuePolicy(
        name=name,
        cohort=fields.text("cohort", ""),
        weight=fields.number("weight", 1.0, above=True),
        objective=Objective(fields.choice("objective", tuple(Objective), Objective.FAIR_SHARE)),
        quotas=_quotas(fields),
        reserve_after_s=fields.optional("reserve_after_s"),
        share_floor=fields.optional("share_floor"),
    )
    fields.done()
    for field, value, remedy in problems_of(queue):
        raise BadInput(f"{fields.where}.{field}", value, remedy, fields.source)
    return queue


def _quotas(fields: Fields) -> dict[str, Quota]:
    found = {}
    for resource, part in fields.named("quotas"):
        limits = {
            name: part.whole(name) if part.has(name) else part.raw(name)
            for name in ("borrowing_limit", "lending_limit")
        }
        found[resource] = Quota(nominal=part.whole("nominal"), **limits)
        part.done()
    return found


def _cluster(fields: Fields) -> ClusterPolicy:
    part = fields.part("cluster")
    values: dict[str, Any] = {}
    for item in dataclasses.fields(ClusterPolicy):
        value = part.raw(item.name)
        if value is None:
            continue
        if item.name == "topology_levels":
            values[item.name] = tuple(str(level) for level in value)
        elif item.name in ("spares", "reserves"):
            inner = part.part(item.name)
            values[item.name] = {name: inner.whole(name) for name in inner.names()}
        elif item.name == "offender_faults":
            values[item.name] = part.whole(item.name, least=1)
        elif item.name in ("forecast_quantile", "max_disruption_ratio"):
            values[item.name] = part.number(item.name, above=True, most=1.0)
        else:
            values[item.name] = part.number(item.name)
    part.done()
    return ClusterPolicy(**values)
