"""Names and small closed sets that the whole engine shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class WorkloadKey:
    """What holds or asks for accelerators, e.g. `Job/ml/llama`."""

    kind: str
    namespace: str
    name: str
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.kind, self.namespace, self.name)))

    def __hash__(self) -> int:
        return self._hash  # a cycle looks keys up some ten thousand times

    def __reduce__(self) -> tuple[type[WorkloadKey], tuple[str, str, str]]:
        return WorkloadKey, self.parts  # hashes of text differ from process to process

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def parts(self) -> tuple[str, str, str]:
        """To sort by: the same order, faster."""
        return (self.kind, self.namespace, self.name)

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


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One expression of a node affinity term: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Kubernetes' own rule (k8s.io/component-helpers nodeaffinity): NotIn and DoesNotExist
        hold where the label is missing; Gt and Lt compare whole numbers."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        if value is None or len(self.values) != 1:
            return False
        try:
            found, bound = int(value), int(self.values[0])
        except ValueError:
            return False
        return found > bound if self.operator == "Gt" else found < bound


#: terms are alternatives; within one all requirements hold. Empty: every node will do
NodeAffinity = tuple[tuple[Requirement, ...], ...]


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class PreemptionPolicy(StrEnum):
    """Kubernetes' two, of a PriorityClass object. `ReclaimPolicy` is Concertina's own."""

    NEVER = "Never"
    PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"


class ReclaimPolicy(StrEnum):
    """What a pending workload of a priority class may take from others of lower priority: nothing,
    replicas above the minimum of elastic jobs, or, where that isn't enough, whole jobs too."""

    NEVER = "Never"
    RECLAIM_ELASTIC = "ReclaimElastic"
    PREEMPT_WHOLE = "PreemptWhole"


class Objective(StrEnum):
    """What a queue shares its accelerators by (DESIGN.md, Planning)."""

    FAIR_SHARE = "fair_share"
    COMPLETION_TIME = "completion_time"
    THROUGHPUT = "throughput"


class VictimChoice(StrEnum):
    """Which pods leave when a workload shrinks: those of the highest index by the API's own rule
    (Indexed Job, KEP-3715), or whichever are named."""

    HIGHEST_INDEX = "highest_index"
    NAMED = "named"
