"""`batch/v1` Indexed Job: elastic by `parallelism` together with `completions`.

Source: KEP-3715, Elastic Indexed Jobs: for `completionMode: Indexed`, `completions` may change as
long as it equals `parallelism` before and after; the pods with the highest indexes leave. That is
why victims can't be chosen here: replica 0 always stays, and the last ones go first.
"""

from __future__ import annotations

from typing import Any

from controlplane.cluster import names
from controlplane.cluster.interface import Manifest, Resource, metadata
from controlplane.cluster.kinds.base import (
    Malformed,
    PriorityTable,
    Stamp,
    Write,
    annotated_int,
    annotations_of,
    common_fields,
    is_finished,
    is_managed,
    shape_of,
)
from controlplane.cluster.resources import JOBS
from controlplane.engine.snapshot import ReplicaShape, Workload
from controlplane.engine.types import VictimChoice

FINISHED = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")


class IndexedJob:
    """See the module. A Job that isn't managed is observed as it is and never resized."""

    resource: Resource = JOBS

    def discover(self, manifest: Manifest) -> bool:
        return is_managed(manifest) or not is_finished(manifest, FINISHED)

    def shape(self, manifest: Manifest) -> ReplicaShape:
        return shape_of(manifest, _pods_per_replica(manifest))

    def observe(self, manifest: Manifest, priorities: PriorityTable) -> Workload:
        spec = manifest.get("spec") or {}
        shape = self.shape(manifest)
        suspended = bool(spec.get("suspend"))
        if is_managed(manifest):
            _check_elastic(manifest, shape)
        granted = 0 if suspended else _parallelism(spec) // shape.pods_per_replica
        return Workload(
            shape=shape,
            granted=granted,
            suspended=suspended,
            finished=is_finished(manifest, FINISHED),
            victims=VictimChoice.HIGHEST_INDEX,
            **common_fields(manifest, priorities),
        )

    def replica_index(self, pod: Manifest, shape: ReplicaShape) -> int | None:
        text = annotations_of(pod).get(names.COMPLETION_INDEX, "")
        return int(text) // shape.pods_per_replica if text.isdecimal() else None

    def resize(
        self, manifest: Manifest, to: int, victims: tuple[str, ...], stamp: Stamp
    ) -> tuple[Write, ...]:
        """`victims` are the highest indexes by definition: the API lets nobody choose others."""
        if to == 0:  # completions: 0 would complete the Job for good
            return (_write(manifest, {"suspend": True}, stamp),)
        return (_write(manifest, self._size(manifest, to), stamp),)

    def admit(self, manifest: Manifest, to: int, stamp: Stamp) -> tuple[Write, ...]:
        return (_write(manifest, {**self._size(manifest, to), "suspend": False}, stamp),)

    def _size(self, manifest: Manifest, to: int) -> dict[str, Any]:
        pods = to * _pods_per_replica(manifest)
        return {"parallelism": pods, "completions": pods}


def _write(manifest: Manifest, spec: dict[str, Any], stamp: Stamp) -> Write:
    meta = metadata(manifest)
    body = {
        "metadata": {
            "resourceVersion": meta["resourceVersion"],
            "annotations": {names.EPOCH: str(stamp.epoch), names.COMMAND: stamp.command},
        },
        "spec": spec,
    }
    return Write(JOBS, str(meta["namespace"]), str(meta["name"]), body)


def _parallelism(spec: dict[str, Any]) -> int:
    value = spec.get("parallelism")
    return 1 if value is None else int(value)


def _pods_per_replica(manifest: Manifest) -> int:
    return annotated_int(manifest, names.PODS_PER_REPLICA, 1, least=1)


def _check_elastic(manifest: Manifest, shape: ReplicaShape) -> None:
    """A managed Job must be one that the API allows to be resized."""
    spec = manifest.get("spec") or {}
    mode, parallelism = spec.get("completionMode"), _parallelism(spec)
    if mode != "Indexed":
        raise Malformed(
            "spec.completionMode", mode, "Only an Indexed Job is elastic: set it to Indexed."
        )
    if spec.get("completions") != parallelism:
        raise Malformed(
            "spec.completions",
            spec.get("completions"),
            f"Set it to spec.parallelism ({parallelism}): they change together (KEP-3715).",
        )
    if parallelism % shape.pods_per_replica:
        raise Malformed(
            "spec.parallelism",
            parallelism,
            f"Make it a multiple of the {shape.pods_per_replica} pods a replica.",
        )
    if names.NEURON_CORE in shape.requests:
        raise Malformed(
            f"spec.template requests of {names.NEURON_CORE}",
            shape.requests[names.NEURON_CORE],
            f"An elastic job takes whole devices: ask for {names.NEURON}.",
        )
