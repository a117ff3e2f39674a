"""The published trace of "openb" (Alibaba cluster-trace-gpu-v2023): nodes.csv and pods.csv.

Latency-sensitive pods (qos LS) are inelastic demand of high priority, for the time in which the
trace knew them (creation to deletion). Of the others, those with whole accelerators become elastic
training jobs whose replica is the pod; those that the trace never scheduled have no known
duration and are left out, as are others that share an accelerator or have none.

**Pods that share an accelerator** (gpu_milli < 1000): the device is what the cluster gives away, so
sharers are packed, in order of creation, into devices of 1000 milli (best fit: the open device that
keeps the least). Each such device is one inelastic pod with one accelerator, wanted from its first
sharer's creation until its last one's deletion, that asks for the most CPU and memory that its
sharers hold at once. Nothing is counted twice, and no device holds more than itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from controlplane.engine.snapshot import Node
from controlplane.simulator.curves import rows
from controlplane.simulator.fields import Fields
from controlplane.simulator.jobs import Book
from controlplane.simulator.machines import machine
from controlplane.simulator.spec import JobSpec, PodSpec
from controlplane.simulator.traces.base import Elasticity, Trace, Window, elasticity, window

NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
PODS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "creation_time",
        "deletion_time", "scheduled_time")  # fmt: skip
LATENCY_SENSITIVE = "LS"
WHOLE = 1000


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    cpu: int
    memory: int
    gpus: int
    milli: int
    qos: str
    created: float
    deleted: float
    scheduled: float | None


@dataclass(slots=True)
class Device:
    """One accelerator that pods share: (deletion, milli, cpu, memory) of those that hold it."""

    since: float
    until: float
    held: list[tuple[float, int, int, int]] = field(default_factory=list)
    cpu: int = 0
    memory: int = 0

    def free(self, now: float) -> int:
        self.held = [part for part in self.held if part[0] > now]
        return WHOLE - sum(part[1] for part in self.held)

    def add(self, row: Row) -> None:
        self.held.append((row.deleted, row.milli, row.cpu, row.memory))
        self.until = max(self.until, row.deleted)
        self.cpu = max(self.cpu, sum(part[2] for part in self.held))
        self.memory = max(self.memory, sum(part[3] for part in self.held))


def openb(fields: Fields, folder: Path) -> Trace:
    """`path`: the folder. `from_day`, `days` and `arrival_scale`; `training` (true): whether
    the other pods become jobs, elastic from `min_factor` to `max_factor`; `priority` of inference,
    `queue` of jobs."""
    path, span, sizes = fields.file("path", folder), window(fields), elasticity(fields)
    priority = fields.whole("priority", 1000, least=-(10**9), most=10**9)
    training, queue = fields.flag("training", True), fields.text("queue", "default")
    read = [r for row in rows(path / "pods.csv", PODS) if (r := _row(row, span)) is not None]

    def nodes(resource: str) -> list[Node]:
        return [_node(row, resource) for row in rows(path / "nodes.csv", NODES)]

    def pods(resource: str) -> list[PodSpec]:
        return inelastic([r for r in read if r.qos == LATENCY_SENSITIVE], resource, priority)

    def jobs(book: Book) -> list[JobSpec]:
        others = [r for r in read if r.qos != LATENCY_SENSITIVE] if training else []
        found = [_job(row, book, sizes, queue) for row in others]
        return [job for job in found if job is not None]

    return Trace(nodes, pods, jobs)


def inelastic(found: list[Row], resource: str, priority: int) -> list[PodSpec]:
    """The pods that demand the places: whole ones as they are, sharers by device."""
    pods = [
        _pod(row.name, row.created, row.deleted, _requests(row, resource), priority)
        for row in found
        if not (row.gpus and row.milli < WHOLE)
    ]
    sharers = [row for row in found if row.gpus and row.milli < WHOLE]
    for number, device in enumerate(devices(sharers)):
        requests = {resource: 1, "cpu": device.cpu, "memory": device.memory}
        name = f"shared-{number:05}"
        pods.append(_pod(name, device.since, device.until, requests, priority))
    return pods


def devices(sharers: list[Row]) -> list[Device]:
    """Sharers packed into devices, best fit in order of creation."""
    all_devices: list[Device] = []
    opened: list[Device] = []
    for row in sorted(sharers, key=lambda row: (row.created, row.name)):
        opened = [device for device in opened if device.until > row.created]
        room = [
            (free, i) for i, d in enumerate(opened) if (free := d.free(row.created)) >= row.milli
        ]
        if room:
            device = opened[min(room)[1]]
        else:
            device = Device(row.created, row.deleted)
            all_devices.append(device)
            opened.append(device)
        device.add(row)
    return all_devices


def _row(row: Fields, span: Window) -> Row | None:
    """A pod with times of the simulation; None if it isn't there within the window."""
    scheduled, created = row.optional("scheduled_time"), row.number("creation_time")
    deleted = row.number("deletion_time")
    name, qos = row.text("name"), row.text("qos")
    if created >= span.end_s or deleted <= span.begin_s:
        return None
    since = span.since(created)
    return Row(
        name=name,
        cpu=row.whole("cpu_milli"),
        memory=row.whole("memory_mib") * 2**20,
        gpus=row.whole("num_gpu"),
        milli=row.whole("gpu_milli", 0, most=WHOLE),
        qos=qos,
        created=since,
        deleted=since + deleted - created,
        scheduled=None if scheduled is None else since + scheduled - created,
    )


def _node(row: Fields, resource: str) -> Node:
    model = row.text("model", "")
    return machine(
        row.text("sn"),
        model or "none",
        resource,
        row.whole("gpu"),
        cpu=row.whole("cpu_milli"),
        memory=row.whole("memory_mib") * 2**20,
        labels={"accelerator": model},
    )


def _requests(row: Row, resource: str) -> dict[str, int]:
    amounts = {resource: row.gpus, "cpu": row.cpu, "memory": row.memory}
    return {name: n for name, n in amounts.items() if n}


def _pod(name: str, since: float, until: float, requests: dict[str, int], priority: int) -> PodSpec:
    return PodSpec(
        name=name,
        start_s=max(0.0, since),
        end_s=until,
        requests=requests,
        priority=priority,
        workload=name,
    )


def _job(row: Row, book: Book, sizes: Elasticity, queue: str) -> JobSpec | None:
    if row.scheduled is None or not row.gpus or row.milli < WHOLE or row.created < 0:
        return None
    duration = row.deleted - row.scheduled
    if duration <= 0:
        return None
    model = book.model()
    low, high = sizes.bounds(1, 10**6)
    return JobSpec(
        name=row.name,
        submit_s=row.created,
        work=duration * book.fixed_rate(model, 1, row.gpus),
        model=model,
        requests=_requests(row, book.resource),
        fixed_replicas=1,
        elasticity=book.policy(low, high),
        team=row.qos,
        queue=queue,
    )
