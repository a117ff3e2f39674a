"""The simulator's own job traces: CSV with the fields of a scenario's jobs as columns."""

from __future__ import annotations

from pathlib import Path

from controlplane.simulator.curves import rows
from controlplane.simulator.fields import Fields
from controlplane.simulator.jobs import Book, job_of
from controlplane.simulator.spec import JobSpec
from controlplane.simulator.traces.base import Trace

NEEDED = ("name", "submit_s", "accelerators")


def jobs_csv(fields: Fields, folder: Path) -> Trace:
    """`path`: the file. Columns: those of `jobs` in a scenario; empty cells are left out."""
    path = fields.file("path", folder)

    def jobs(book: Book) -> list[JobSpec]:
        return [job_of(row, book) for row in rows(path, NEEDED)]

    return Trace(jobs=jobs)
