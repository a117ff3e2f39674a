"""What carries a decision to the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controlplane.engine.reasons import Reason
from controlplane.engine.types import WorkloadKey


class CommandKind(StrEnum):
    RESIZE = "resize"
    ADMIT = "admit"
    SUSPEND = "suspend"


@dataclass(frozen=True, slots=True)
class Command:
    """`victims`: names of the pods that leave, in the order in which they do. `precondition`: the
    resourceVersion of the workload that the decision was taken on, `uid` its identity. A SUSPEND
    goes to 0 replicas: the job keeps its place in the queue and its state on disk."""

    kind: CommandKind
    workload: WorkloadKey
    from_replicas: int
    to_replicas: int
    victims: tuple[str, ...]
    precondition: str
    reason: Reason
    uid: str = ""
