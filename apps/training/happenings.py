"""Keep what happened to a job: bounded, and told to the pages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apps.core import events
from apps.training.choices import EventKind
from apps.training.events import happened_event
from apps.training.models import JobEvent, TrainingJob

#: of one report, and of one job: a log rule may match every line. The newest are kept
MOST_AT_ONCE = 100
MOST_KEPT = 1000


def record(job: TrainingJob, happened: list[JobEvent]) -> None:
    """Write them and drop the job's oldest beyond `MOST_KEPT`. In the caller's transaction."""
    if not happened:
        return
    kept = happened[-MOST_AT_ONCE:]
    JobEvent.objects.bulk_create(kept)
    oldest = job.events.order_by("-at", "-id").values_list("pk", flat=True)[MOST_KEPT:]
    JobEvent.objects.filter(pk__in=list(oldest)).delete()
    events.publish_many([happened_event(each) for each in kept])


def note(job: TrainingJob, kind: EventKind, at: datetime, sentence: str, **fields: Any) -> None:
    """One that the control plane saw itself; no trainer reported it."""
    record(job, [JobEvent(job=job, kind=kind, at=at, sentence=sentence, **fields)])
