"""Reports of trainers."""

from __future__ import annotations

from typing import Any

from apps.training.models import TrainingJob


def take_in(job: TrainingJob, body: Any) -> dict[str, int]:
    raise NotImplementedError
