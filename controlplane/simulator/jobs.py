"""Jobs from YAML entries and CSV rows: one set of fields for both (docs/guides/simulator.md)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controlplane.engine.policy import ElasticityPolicy, validate
from controlplane.engine.types import VictimChoice
from controlplane.simulator.fields import BadInput, Fields
from controlplane.simulator.model import JobModel, Placement, PowerLaw, TableModel, packed
from controlplane.simulator.spec import JobSpec

#: what an elasticity policy's fields may be set to in scenarios, beside the sizes
DAMPING = tuple(
    f.name
    for f in dataclasses.fields(ElasticityPolicy)
    if f.name not in ("name", "min_replicas", "max_replicas")
)


@dataclass(slots=True)
class Book:
    """What all jobs of a scenario share. `damping`: fields of elasticity policies; `exponent` and
    `spread_loss`: of jobs without a measured throughput (`model.PowerLaw`). Equal elasticity
    policies get one name."""

    resource: str
    node_size: int
    damping: Mapping[str, Any] = field(default_factory=dict)
    exponent: float = 0.9
    spread_loss: float = 0.0
    _names: dict[str, str] = field(default_factory=dict)

    def policy(self, low: int, high: int, **fields: Any) -> ElasticityPolicy:
        """The policy with these bounds, the scenario's damping and these fields."""
        values = {**self.damping, **fields}
        policy = ElasticityPolicy("", low, high, **values)
        number = len(self._names) + 1
        name = self._names.setdefault(repr(policy), f"elastic-{number:03}")
        return replace(policy, name=name)

    def model(self) -> JobModel:
        return PowerLaw(self.exponent, 1.0, self.spread_loss)

    def fixed_rate(self, model: JobModel, replicas: int, per_replica: int) -> float:
        """Progress a second at a size, packed on nodes of this cluster."""
        placement: Placement = packed(replicas, max(1, self.node_size // max(1, per_replica)))
        return model.rate(placement, 0.0)


def damping_of(fields: Fields) -> dict[str, Any]:
    """The fields of an elasticity policy that are given, checked by the engine's own rules."""
    values = {name: fields.raw(name) for name in DAMPING if fields.has(name)}
    for name in DAMPING:
        fields.raw(name)
    if isinstance(values.get("replica_discrete_values"), list):
        values["replica_discrete_values"] = tuple(values["replica_discrete_values"])
    if isinstance(values.get("schedule"), list):
        values["schedule"] = tuple(values["schedule"])
    fields.done()
    return values


def check(policy: ElasticityPolicy, fields: Fields) -> ElasticityPolicy:
    """The policy, if the engine can use it. Raises BadInput, naming the field."""
    problems = validate(policy)
    if problems:
        first = problems[0]
        where = f"{fields.where}.{first.field}" if fields.where else first.field
        raise BadInput(where, first.value, first.message, fields.source)
    return policy


def job_of(fields: Fields, book: Book) -> JobSpec:
    """A job from one YAML entry or CSV row. Raises BadInput, naming the field."""
    accelerators = fields.whole("accelerators", least=1)
    per_pod = fields.whole("accelerators_per_pod", min(accelerators, book.node_size), least=1)
    pods = fields.whole("pods_per_replica", 1, least=1)
    if accelerators % (per_pod * pods):
        raise fields.bad(
            "accelerators",
            f"must be a multiple of a replica's ({per_pod * pods}); set accelerators_per_pod "
            "and pods_per_replica",
        )
    fixed = accelerators // (per_pod * pods)
    model = _model(fields, book)
    name = fields.text("name")
    spec = JobSpec(
        name=name,
        submit_s=fields.number("submit_s", 0.0),
        work=_work(fields, book.fixed_rate(model, fixed, per_pod * pods)),
        model=model,
        requests=_requests(fields, book, per_pod),
        fixed_replicas=fixed,
        elasticity=_elasticity(fields, book, fixed),
        pods_per_replica=pods,
        priority=fields.whole("priority", 100, least=-(10**9), most=10**9),
        priority_class=fields.text("priority_class", "training"),
        team=fields.text("team", "training"),
        queue=fields.text("queue", "default"),
        weight=fields.number("weight", 1.0, above=True),
        node_selector=fields.labels("node_selector"),
        topology=fields.text("topology", ""),
        topology_required=fields.flag("topology_required", False),
        victims=VictimChoice(
            fields.choice("victims", tuple(VictimChoice), VictimChoice.HIGHEST_INDEX)
        ),
    )
    fields.done()
    return spec


def _work(fields: Fields, rate: float) -> float:
    """Progress to make: `work` in the model's unit, or what the fixed size does in `duration_s`."""
    if fields.has("work") == fields.has("duration_s"):
        raise fields.bad("duration_s", "give duration_s or work, one of them")
    work, duration = fields.optional("work"), fields.optional("duration_s")
    found = work if work is not None else (duration or 0.0) * rate
    if found <= 0:
        name = "work" if work is not None else "duration_s"
        raise fields.bad(name, "must be above 0: a job without work ends before it starts")
    return found


def _model(fields: Fields, book: Book) -> JobModel:
    table = fields.raw("throughput")
    exponent = fields.number("exponent", book.exponent, above=True, most=2.0)
    loss = fields.number("spread_loss", book.spread_loss, most=0.99)
    if table is None:
        return PowerLaw(exponent, 1.0, loss)
    try:
        return TableModel({int(size): float(rate) for size, rate in table.items()})
    except (AttributeError, TypeError, ValueError) as error:
        raise fields.bad(
            "throughput", "must be a mapping of replica counts to rates above 0"
        ) from error


def _requests(fields: Fields, book: Book, per_pod: int) -> dict[str, int]:
    requests = {book.resource: per_pod}
    cpu, memory = fields.optional("cpu"), fields.optional("memory_gib")
    if cpu:
        requests["cpu"] = math.ceil(cpu * 1000)
    if memory:
        requests["memory"] = math.ceil(memory * 2**30)
    return requests


def _elasticity(fields: Fields, book: Book, fixed: int) -> ElasticityPolicy:
    low = fields.whole("min_replicas", fixed, least=1)
    high = fields.whole("max_replicas", max(low, fixed), least=1)
    given = damping_of(fields.part("elasticity"))
    return check(book.policy(low, high, **given), fields)
