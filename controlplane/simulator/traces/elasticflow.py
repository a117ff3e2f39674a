"""The published traces of "ElasticFlow" (ASPLOS 2023): job_id, submission_time, duration, num_gpu.

Ten clusters over two months. Times in seconds; `duration` is that of the job at `num_gpu`.
"""

from __future__ import annotations

from pathlib import Path

from controlplane.simulator.curves import rows
from controlplane.simulator.fields import Fields
from controlplane.simulator.jobs import Book
from controlplane.simulator.spec import JobSpec
from controlplane.simulator.traces.base import Elasticity, Trace, Window, elasticity, window

COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")


def elasticflow(fields: Fields, folder: Path) -> Trace:
    """`path`; `from_day`, `days` and `arrival_scale`; `min_factor` and `max_factor`;
    `most_accelerators` of a job, `priority`, `queue` and `team` of all."""
    path, span, sizes = fields.file("path", folder), window(fields), elasticity(fields)
    most = fields.whole("most_accelerators", 256, least=1)
    named = {
        "priority": fields.whole("priority", 100, least=-(10**9), most=10**9),
        "queue": fields.text("queue", "default"),
        "team": fields.text("team", path.stem),
    }

    def jobs(book: Book) -> list[JobSpec]:
        found = [_job(row, book, span, sizes, most) for row in rows(path, COLUMNS)]
        return [
            JobSpec(**job, **named)  # type: ignore[arg-type]
            for job in found
            if job is not None
        ]

    return Trace(jobs=jobs)


def _job(
    row: Fields, book: Book, span: Window, sizes: Elasticity, most: int
) -> dict[str, object] | None:
    """A job below a node's size grows by accelerators; a larger one by whole nodes."""
    at, gpus = row.number("submission_time"), row.whole("num_gpu", least=1)
    duration = row.number("duration")
    if not span.holds(at) or duration <= 0:
        return None
    per_pod = 1 if gpus < book.node_size or gpus % book.node_size else book.node_size
    fixed = gpus // per_pod
    low, high = sizes.bounds(fixed, max(fixed, most // per_pod))
    model = book.model()
    return {
        "name": row.text("job_id"),
        "submit_s": span.since(at),
        "work": duration * book.fixed_rate(model, fixed, per_pod),
        "model": model,
        "requests": {book.resource: per_pod},
        "fixed_replicas": fixed,
        "elasticity": book.policy(low, high),
    }
