"""The demo's parts, each a step that is called again and again by the one loop."""

from __future__ import annotations

import logging
import random
import threading
import uuid
from dataclasses import dataclass

from controlplane.sandbox.demo import manifests
from controlplane.sandbox.demo.demand import (
    SLOT_SECONDS,
    inference_accelerators,
    replicas_for,
    research_job,
)
from controlplane.sandbox.demo.manifests import SIMULATED, Simulated
from controlplane.sandbox.demo.objects import Objects, PodWatch
from controlplane.sandbox.demo.reporter import Reporter
from controlplane.sandbox.demo.trainer import Progress, Trainer

logger = logging.getLogger("demo")
_MOST_RESEARCH = 24
_SAVE_SECONDS = 10.0
# above everything that was sent after the last save
_SEQUENCE_GAP = 100_000


@dataclass(frozen=True, slots=True)
class Options:
    """`speed`: how much faster than ten minutes a day goes by. `authority`: host:port.
    `checkpoints`: the real job's folder."""

    speed: float
    seed: int
    authority_host: str
    authority_port: int
    checkpoints: str

    @property
    def authority(self) -> str:
        return f"{self.authority_host}:{self.authority_port}"


def create_first(objects: Objects, options: Options, now: float) -> None:
    """Everything that stays; what is there already is left alone."""
    for name in manifests.NAMESPACES:
        objects.ensure(manifests.namespace(name))
    for name in manifests.PRIORITIES:
        objects.ensure(manifests.priority_class(name))
    objects.ensure(manifests.inference(_inference_wanted(options, now)))
    create_jobs(objects, options)


def create_jobs(objects: Objects, options: Options) -> None:
    """The training jobs and the real one's authority; a job that has ended is submitted again."""
    objects.ensure(manifests.authority(options.authority_host, options.authority_port))
    if not objects.remove_finished(manifests.REAL_JOB):
        objects.ensure(manifests.real_job(options.authority, options.checkpoints))
    for job in SIMULATED:
        if not objects.remove_finished(job.name):
            objects.ensure(manifests.simulated_job(job))


def _inference_wanted(options: Options, now: float) -> int:
    wanted = inference_accelerators(now, speed=options.speed, seed=options.seed)
    return replicas_for(wanted, manifests.INFERENCE_ACCELERATORS)


def follow_the_day(objects: Objects, options: Options, now: float) -> None:
    """Scale inference to the traffic of this moment."""
    wanted, size = _inference_wanted(options, now), objects.inference_size()
    if size is None:
        objects.ensure(manifests.inference(wanted))
    elif wanted != size:
        objects.scale_inference(wanted, size - wanted)


class Research:
    """Submits the research jobs of each slot once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._slot: int | None = None

    def step(self, objects: Objects, now: float) -> None:
        """Submit what arrives in the present slot."""
        slot = int(now * self._options.speed // SLOT_SECONDS)
        if slot == self._slot:
            return
        self._slot = slot
        job = research_job(slot, speed=self._options.speed, seed=self._options.seed)
        if job is not None and objects.research_running() < _MOST_RESEARCH:
            objects.ensure(manifests.research(job))


class SimulatedTrainers:
    """The trainers of the simulated jobs, each with its reporter."""

    def __init__(self, objects: Objects, watch: PodWatch, options: Options) -> None:
        self._objects = objects
        self._watch = watch
        self._options = options
        self._running: dict[str, tuple[Trainer, Reporter]] = {}
        self._saved_at = 0.0

    def step(self, now: float) -> None:
        """Advance every trainer by what its pods did since the last step."""
        for job in SIMULATED:
            pods = self._watch.members(job.name)
            if pods is None:
                continue
            if job.name not in self._running:
                self._running[job.name] = self._start(job)
            trainer, reporter = self._running[job.name]
            reporter.add(trainer.advance(now, pods))
        if now - self._saved_at >= _SAVE_SECONDS:
            self._saved_at = now
            self.save()

    def save(self) -> None:
        """Write each trainer's progress to the cluster."""
        for name, (trainer, _) in self._running.items():
            saved = {**trainer.progress.to_dict(), "uid": self._objects.job_uid(name)}
            self._objects.save_progress(name, saved)

    def stop(self) -> None:
        for _, reporter in self._running.values():
            reporter.stop()

    def _start(self, job: Simulated) -> tuple[Trainer, Reporter]:
        """Go on where the progress that was saved for this very job says."""
        saved, uid = self._objects.load_progress(job.name), self._objects.job_uid(job.name)
        if saved and saved.pop("uid", None) == uid:
            progress = Progress(**saved)
            progress.seq += _SEQUENCE_GAP
        else:
            progress = Progress(attempt=f"sim-{uuid.uuid4().hex[:12]}")
        chance = random.Random(f"{self._options.seed}:{job.name}:{progress.quorum_id}")
        trainer = Trainer(job, progress, chance)
        reporter = Reporter(job.name, progress.attempt, lambda: self._objects.target(job.name))
        threading.Thread(target=reporter.run, name=f"report-{job.name}", daemon=True).start()
        logger.info("trainer of %s at step %d", job.name, progress.step)
        return trainer, reporter
