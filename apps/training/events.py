"""What the live stream tells of training: the same objects that the API shows."""

from __future__ import annotations

from typing import Any

from apps.training.models import RecoveryEvent, TrainingJob

Event = tuple[str, dict[str, Any]]


def job_event(job: TrainingJob) -> Event:
    from apps.training.api.serializers import JobSerializer

    return "job", dict(JobSerializer(job).data)


def recovery_event(recovery: RecoveryEvent) -> Event:
    from apps.training.api.serializers import RecoverySerializer

    return "recovery", dict(RecoverySerializer(recovery).data)
