"""The published workloads of "Pollux" (OSDI 2021): name, time, application, num_replicas,
batch_size, with measured applications (`measured.Application`) beside them.

A replica has one accelerator. With a fixed batch size, progress is counted in optimizer steps at
that size, as a trainer does; where the batch follows the size (`batch_policy: scale`), in steps at
the initial one, and each placement uses the batch size that makes the most progress there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from controlplane.simulator.curves import rows
from controlplane.simulator.fields import Fields
from controlplane.simulator.jobs import Book
from controlplane.simulator.measured import Application
from controlplane.simulator.model import Placement
from controlplane.simulator.spec import JobSpec
from controlplane.simulator.traces.base import Trace

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
#: samples an accelerator at most, where memory allows fewer than were timed
LARGEST_LOCAL = {"yolov3": 8}
#: applications that run on one accelerator
SINGLE = frozenset({"ncf"})


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """Optimizer steps a second at one batch size."""

    application: Application
    batch: int

    def rate(self, placement: Placement, progress: float) -> float:
        if not placement:
            return 0.0
        return 1.0 / self.application.step_seconds(tuple(reversed(placement)), self.batch)

    def boundary(self, progress: float) -> float:
        return math.inf


@dataclass(frozen=True, slots=True)
class ScaledBatch:
    """Steps at the initial batch size a second, with the best batch size at each placement."""

    application: Application

    def rate(self, placement: Placement, progress: float) -> float:
        if not placement:
            return 0.0
        application, places = self.application, tuple(reversed(placement))
        epoch = application.epoch(progress)
        batch = application.best_batch(places, epoch)
        return application.progress_rate(places, batch, epoch)

    def boundary(self, progress: float) -> float:
        return self.application.ends[self.application.epoch(progress)]


@cache
def application_of(folder: Path) -> Application:
    """Read once; its jobs share what it has interpolated."""
    return Application.read(folder, LARGEST_LOCAL.get(folder.name))


def pollux(fields: Fields, folder: Path) -> Trace:
    """`path`: the workload; `applications`: the folder of measurements (beside the workload's
    own folder, if it isn't given); `most_replicas` (64) of a job."""
    path = fields.file("path", folder)
    measured = path.parent.parent / "applications"
    if fields.has("applications"):
        measured = fields.file("applications", folder)
    most = fields.whole("most_replicas", 64, least=1)

    def jobs(book: Book) -> list[JobSpec]:
        return [_job(row, book, measured, most) for row in rows(path, COLUMNS)]

    return Trace(jobs=jobs)


def _job(row: Fields, book: Book, measured: Path, most: int) -> JobSpec:
    name = row.text("application")
    if not (measured / name / "placements.csv").exists():
        raise row.bad("application", f"has no measurements in {measured}; set applications")
    application = application_of(measured / name)
    batch = row.whole("batch_size", least=1)
    fixed = row.whole("num_replicas", least=1)
    widest = 1 if name in SINGLE else min(most, application.most_replicas(batch))
    if fixed > widest:
        raise row.bad("num_replicas", f"is more than the {widest} that {name} can use")
    return JobSpec(
        name=row.text("name"),
        submit_s=row.number("time"),
        work=application.steps(batch),
        model=FixedBatch(application, batch),
        requests={book.resource: 1},
        fixed_replicas=fixed,
        elasticity=book.policy(1, widest),
        team=name,
        scaled=ScaledBatch(application),
        scaled_work=application.total,
    )
