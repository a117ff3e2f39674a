"""What the live stream tells of training: the same objects that the API shows."""

from __future__ import annotations

from typing import Any

from apps.training.models import JobEvent, RecoveryEvent, ThroughputSample, TrainingJob

Event = tuple[str, dict[str, Any]]


def job_event(job: TrainingJob) -> Event:
    from apps.training.api.serializers import JobSerializer

    return "job", dict(JobSerializer(job).data)


def recovery_event(recovery: RecoveryEvent) -> Event:
    from apps.training.api.serializers import RecoverySerializer

    return "recovery", dict(RecoverySerializer(recovery).data)


def happened_event(event: JobEvent) -> Event:
    from apps.training.api.serializers import JobEventSerializer

    return "job_event", dict(JobEventSerializer(event).data)


def sample_event(sample: ThroughputSample) -> Event:
    fields = (
        "at", "step", "samples_per_s", "tokens_per_s", "loss", "learning_rate", "step_ms", "mfu",
        "grad_norm", "data_wait_ms", "phases_ms", "tokens", "bytes_moved", "global_batch_size",
        "world_size",
    )  # fmt: skip
    return "sample", {"job": sample.job_id, **{name: getattr(sample, name) for name in fields}}
