"""The workload kinds, in one explicit list. A new kind is one file and one line here."""

from __future__ import annotations

from controlplane.cluster.interface import Manifest
from controlplane.cluster.kinds.base import ElasticKind, WorkloadKind
from controlplane.cluster.kinds.deployment import Deployment
from controlplane.cluster.kinds.indexed_job import IndexedJob

KINDS: tuple[WorkloadKind, ...] = (IndexedJob(), Deployment())

_BY_KIND = {kind.resource.kind: kind for kind in KINDS}


def kind_named(name: str) -> WorkloadKind | None:
    """The kind of a WorkloadKey's `kind`; None when we don't know it."""
    return _BY_KIND.get(name)


def elastic_kind(name: str) -> ElasticKind | None:
    """The kind of that name if it can be resized; None otherwise."""
    kind = kind_named(name)
    return kind if isinstance(kind, ElasticKind) else None


def kind_of(manifest: Manifest) -> WorkloadKind | None:
    """The kind that a manifest is of; None when we don't know it."""
    return kind_named(str(manifest.get("kind")))
