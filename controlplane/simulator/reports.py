"""What the trainers tell the planner: steps, throughput by replica count, the cost of a resize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.policy import valid_sizes
from controlplane.engine.snapshot import TrainerReport
from controlplane.engine.types import WorkloadKey
from controlplane.simulator.model import packed
from controlplane.simulator.runtime import SimJob
from controlplane.simulator.spec import STEPS

CURVES = ("observed", "known", "none")


@dataclass(slots=True)
class Told:
    """`remaining`: trainers report their total steps. `curves`: throughput at the sizes that the
    job has had (`observed`), at all valid ones from the start (`known`), or none. `declared`:
    jobs that haven't started yet are reported on too, as if their manifest said it. `cost_s`: the
    measured cost of a resize, None if they don't tell. `node_size`: accelerators of a node, by
    which a known curve is packed."""

    remaining: bool = True
    curves: str = "observed"
    declared: bool = False
    cost_s: float | None = None
    node_size: int = 8
    _known: dict[WorkloadKey, tuple[float, Mapping[int, float]]] = field(default_factory=dict)

    def report(self, job: SimJob, now: float) -> TrainerReport | None:
        """The newest report of a job; None of one that has nothing to tell yet."""
        if not (job.started or self.declared):
            return None
        job.observe(now)
        throughput = self._throughput(job)
        return TrainerReport(
            productive=job.replicas if job.started else None,
            committed_steps=int(STEPS * min(1.0, job.progress / job.work)),
            total_steps=STEPS if self.remaining else None,
            throughput=throughput,
            deviation=dict.fromkeys(throughput, 0.0),  # virtual time has no noise
            resize_cost_s=self.cost_s,
            reported_at=now,
            samples_per_step=job.samples_per_step,
            attained=job.attained,
        )

    def _throughput(self, job: SimJob) -> Mapping[int, float]:
        if self.curves == "observed":
            return dict(job.observed)
        if self.curves == "none":
            return {}
        until, curve = self._known.get(job.key, (-1.0, {}))
        if job.progress >= until:
            per_node = max(1, self.node_size // max(1, job.per_replica))
            curve = {
                size: job.model.rate(packed(size, per_node), job.progress)
                for size in valid_sizes(job.spec.elasticity)
            }
            self._known[job.key] = (job.model.boundary(job.progress), curve)
        return curve
