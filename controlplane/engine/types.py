"""Names and small closed sets that the whole engine shares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class WorkloadKey:
    """What holds or asks for accelerators, e.g. `Job/ml/llama`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> WorkloadKey:
        """The key that `str()` wrote. Raises ValueError for anything else."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"{text!r} is no workload: write Kind/namespace/name")
        return cls(*parts)


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, order=True)
class Toleration:
    """`key` empty with operator Exists tolerates all; `effect` empty matches every effect."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Kubernetes' own rule (k8s.io/api/core/v1 Toleration.ToleratesTaint)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class PreemptionPolicy(StrEnum):
    """Kubernetes' two, of a PriorityClass object. `apps.priorities` holds Concertina's own."""

    NEVER = "Never"
    PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
