"""Reads of elasticity policies."""

from __future__ import annotations

from apps.elasticity.models import ElasticityPolicy, to_engine
from controlplane.engine import policy as engine


def policies() -> dict[str, engine.ElasticityPolicy]:
    """Every policy by name, for a PolicySet."""
    return {row.name: to_engine(row) for row in ElasticityPolicy.objects.order_by("name")}


def by_name(name: str) -> ElasticityPolicy | None:
    return ElasticityPolicy.objects.filter(name=name).first()


def sizes(row: ElasticityPolicy) -> tuple[int, ...]:
    return engine.valid_sizes(to_engine(row))
