"""Training jobs, what their trainers report, and the agents that run them."""

from apps.training.models.jobs import (
    COUNTS,
    InflowHour,
    JobToken,
    NodeFault,
    Replica,
    TrainingJob,
)
from apps.training.models.reports import (
    JobEvent,
    RecoveryEvent,
    RunAttempt,
    ScalingPoint,
    ThroughputSample,
)

__all__ = [
    "COUNTS",
    "InflowHour",
    "JobEvent",
    "JobToken",
    "NodeFault",
    "RecoveryEvent",
    "Replica",
    "RunAttempt",
    "ScalingPoint",
    "ThroughputSample",
    "TrainingJob",
]
