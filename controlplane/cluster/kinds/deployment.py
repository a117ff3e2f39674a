"""`apps/v1` Deployment: inelastic demand, observed so that its pods have a holder.

Which of its pods leave when somebody shrinks it can be named, by
`controller.kubernetes.io/pod-deletion-cost` (KEP-2255); we shrink none.
"""

from __future__ import annotations

from controlplane.cluster.interface import Manifest, Resource
from controlplane.cluster.kinds.base import (
    PriorityTable,
    common_fields,
    shape_of,
)
from controlplane.cluster.resources import DEPLOYMENTS
from controlplane.engine.snapshot import ReplicaShape, Workload
from controlplane.engine.types import VictimChoice


class Deployment:
    """One pod is one replica. `managed` is always False: what serves traffic sizes itself."""

    resource: Resource = DEPLOYMENTS

    def discover(self, manifest: Manifest) -> bool:
        return True

    def shape(self, manifest: Manifest) -> ReplicaShape:
        return shape_of(manifest, 1)

    def observe(self, manifest: Manifest, priorities: PriorityTable) -> Workload:
        replicas = (manifest.get("spec") or {}).get("replicas")
        fields = common_fields(manifest, priorities)
        return Workload(
            shape=self.shape(manifest),
            granted=1 if replicas is None else int(replicas),
            suspended=False,
            finished=False,
            victims=VictimChoice.NAMED,
            **{**fields, "managed": False},
        )

    def replica_index(self, pod: Manifest, shape: ReplicaShape) -> int | None:
        return None
