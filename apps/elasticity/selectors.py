"""Reads of elasticity policies, and the way to the engine's own type."""

from __future__ import annotations

import dataclasses

from apps.elasticity.models import ElasticityPolicy
from controlplane.engine import policy as engine


def to_engine(row: ElasticityPolicy) -> engine.ElasticityPolicy:
    """The same policy as the engine's frozen dataclass."""
    known = {field.name for field in dataclasses.fields(engine.ElasticityPolicy)}
    values = {name: getattr(row, name) for name in known if hasattr(row, name)}
    if values.get("replica_discrete_values") is not None:
        values["replica_discrete_values"] = tuple(values["replica_discrete_values"])
    return engine.ElasticityPolicy(**values)


def policies() -> dict[str, engine.ElasticityPolicy]:
    """Every policy by name, for a PolicySet."""
    return {row.name: to_engine(row) for row in ElasticityPolicy.objects.order_by("name")}


def by_name(name: str) -> ElasticityPolicy | None:
    return ElasticityPolicy.objects.filter(name=name).first()


def sizes(row: ElasticityPolicy) -> tuple[int, ...]:
    return engine.valid_sizes(to_engine(row))
