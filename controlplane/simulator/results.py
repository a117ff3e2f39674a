"""What a simulation found, as plain numbers: `result.json` (docs/guides/simulator.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from controlplane.simulator.meter import series
from controlplane.simulator.model import packed
from controlplane.simulator.run import Simulation
from controlplane.simulator.runtime import SimJob
from controlplane.simulator.spec import HOUR_S

FORMAT = 1
#: a job is unfair to its owner beyond so many times its time at fixed size, alone
UNFAIR = 3.0


def results(simulation: Simulation, seed: int) -> dict[str, Any]:
    """Everything about one run. Times in seconds, sums in accelerator-hours; None where there is
    nothing to tell."""
    start, end = simulation.scenario.start, simulation.now
    finished = simulation.finished
    live = list(simulation.cluster.jobs.values())
    jobs = [*finished, *live]
    return {
        "format": FORMAT,
        "scenario": simulation.scenario.name,
        "policy": simulation.policy.name,
        "seed": seed,
        "simulated_s": round(end - start, 3),
        "cycles": simulation.cycles,
        "jobs": {
            "submitted": len(jobs),
            "finished": len(finished),
            "unfinished": len(live),
            "stuck": [job.spec.name for job in live] if simulation.stuck else [],
        },
        "jct_s": distribution(jct(job, start) for job in finished),
        "first_wait_s": distribution(
            job.first_started_at - start - job.spec.submit_s
            for job in jobs
            if job.first_started_at is not None
        ),
        "queueing_s": distribution(job.queued_s for job in jobs),
        "capacity": capacity(simulation),
        "resizes": resizes(simulation, jobs, end - start),
        "disruption": disruption(jobs),
        "fairness": fairness(simulation, finished),
        "reclaim": reclaim(simulation),
        "commands": dict(sorted(simulation.reasons.items())),
        "per_job": [row(simulation, job) for job in sorted(jobs, key=lambda j: j.arrival)],
        "series": _from_zero(series(simulation.meter.points, end), start),
    }


def jct(job: SimJob, start: float) -> float:
    """Job completion time: from submission to the end."""
    assert job.finished_at is not None
    return job.finished_at - start - job.spec.submit_s


def alone_s(simulation: Simulation, job: SimJob) -> float:
    """How long it takes with its fixed size on an idle cluster: its start, and its work."""
    resource = simulation.scenario.resource
    size = max((n.capacity.get(resource, 0) for n in simulation.scenario.nodes), default=1)
    placement = packed(job.spec.fixed_replicas, max(1, size // max(1, job.per_replica)))
    costs, model = simulation.costs, job.spec.model
    pause = costs.resize_pause_s if costs.start_pause_s is None else costs.start_pause_s
    took, progress = costs.pod_start_s + pause, 0.0
    while progress < job.spec.work:
        rate = model.rate(placement, progress)
        if rate <= 0:
            return math.inf
        bound = min(job.spec.work, model.boundary(progress))
        took += (bound - progress) / rate
        progress = max(bound, math.nextafter(progress, math.inf))
    return took


def distribution(values: Iterable[float]) -> dict[str, Any]:
    """Count, mean, p50, p90, p99 (nearest rank) and the largest."""
    found = sorted(values)
    if not found:
        return {"n": 0, "mean": None, "p50": None, "p90": None, "p99": None, "max": None}
    return {
        "n": len(found),
        "mean": _round(sum(found) / len(found)),
        **{f"p{p}": _round(percentile(found, p)) for p in (50, 90, 99)},
        "max": _round(found[-1]),
    }


def percentile(ordered: Sequence[float], p: float) -> float:
    """The smallest value that at least `p` % are not above (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)]


def jain(values: Sequence[float]) -> float | None:
    """Jain's index of fairness (1984): 1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def capacity(simulation: Simulation) -> dict[str, Any]:
    """Accelerator-hours of nodes that were ready, and what became of them. `freed`: those that
    inelastic demand left of the most that it ever held, beyond what training needs at least."""
    sums = {name: value / HOUR_S for name, value in simulation.meter.sums.items()}
    there = sums["capacity"]
    used = sums["training"] + sums["inelastic"]
    return {
        "accelerator_h": _round(there),
        "training_h": _round(sums["training"]),
        "productive_h": _round(sums["productive"]),
        "inelastic_h": _round(sums["inelastic"]),
        "idle_h": _round(max(0.0, there - used)),
        "utilization": _ratio(used, there),
        "productive_utilization": _ratio(sums["productive"] + sums["inelastic"], there),
        **freed(simulation),
    }


def freed(simulation: Simulation) -> dict[str, Any]:
    """Of the accelerator-hours that inelastic demand frees below its peak, the part that training
    jobs held, and the part in which they made progress; beyond what they hold at the peak."""
    points = simulation.meter.points
    names = list(simulation.meter.levels)
    wanted, training = names.index("wanted"), names.index("training")
    productive, there = names.index("productive"), names.index("capacity")
    peak = max((values[wanted] for _, values in points), default=0)
    total = held = working = 0.0
    for i, (at, values) in enumerate(points):
        until = points[i + 1][0] if i + 1 < len(points) else simulation.now
        took, room = (until - at) / HOUR_S, peak - values[wanted]
        floor = max(0, values[there] - peak)
        total += took * room
        held += took * min(room, max(0, values[training] - floor))
        working += took * min(room, max(0, values[productive] - floor))
    return {
        "freed_h": _round(total) if peak else None,
        "freed_used_ratio": _ratio(held, total),
        "freed_productive_ratio": _ratio(working, total),
    }


def resizes(simulation: Simulation, jobs: Sequence[SimJob], seconds: float) -> dict[str, Any]:
    n, flaps = sum(job.resizes for job in jobs), sum(job.flaps for job in jobs)
    hours = seconds / HOUR_S
    return {
        "n": n,
        "per_hour": _ratio(n, hours),
        "suspensions": sum(job.suspensions for job in jobs),
        "flaps": flaps,
        "flaps_per_day": _ratio(24 * flaps, hours),
    }


def disruption(jobs: Sequence[SimJob]) -> dict[str, Any]:
    """Accelerator-hours held without progress: in pauses, and by pods whose job stood or that
    weren't part of it yet."""
    paused = sum(job.paused_accelerator_s for job in jobs) / HOUR_S
    idle = sum(job.idle_held_s for job in jobs) / HOUR_S
    attained = sum(job.attained for job in jobs) / HOUR_S
    return {
        "paused_h": _round(paused),
        "held_idle_h": _round(idle),
        "of_held": _ratio(paused + idle, attained),
        "faults": sum(job.faults for job in jobs),
    }


def fairness(simulation: Simulation, finished: Sequence[SimJob]) -> dict[str, Any]:
    """Slowdown: completion time over the time alone at fixed size."""
    start = simulation.scenario.start
    slow = {job.spec.name: jct(job, start) / alone_s(simulation, job) for job in finished}
    unfair = sorted((name for name, s in slow.items() if s > UNFAIR), key=lambda n: (-slow[n], n))
    index = jain(list(slow.values()))
    return {
        "jain": None if index is None else round(index, 4),
        "slowdown": distribution(slow.values()),
        "unfair_beyond": UNFAIR,
        "unfair": [{"job": name, "slowdown": _round(slow[name])} for name in unfair],
    }


def reclaim(simulation: Simulation) -> dict[str, Any]:
    """Waits of inelastic pods with accelerators, from creation to binding (or to the end of the
    demand). `waited`: of those alone that didn't find their place at once."""
    waits = list(simulation.meter.waits)
    for pod, since in simulation.waiting_inelastic():
        if pod.requests.get(simulation.scenario.resource, 0):
            waits.append(simulation.now - since)
    return {
        "wait_s": distribution(waits),
        "waited_s": distribution(wait for wait in waits if wait > 0),
        "waiting_accelerator_h": _round(simulation.meter.sums["waiting"] / HOUR_S),
    }


def row(simulation: Simulation, job: SimJob) -> dict[str, Any]:
    start = simulation.scenario.start
    done = job.finished_at is not None
    started = job.first_started_at
    return {
        "name": job.spec.name,
        "team": job.spec.team,
        "submit_s": _round(job.spec.submit_s),
        "first_start_s": None if started is None else _round(started - start),
        "finish_s": _round(job.finished_at - start) if job.finished_at is not None else None,
        "jct_s": _round(jct(job, start)) if done else None,
        "slowdown": _round(jct(job, start) / alone_s(simulation, job)) if done else None,
        "done": round(min(1.0, job.progress / job.work), 6),
        "attained_accelerator_h": _round(job.attained / HOUR_S),
        "queueing_s": _round(job.queued_s),
        "paused_s": _round(job.paused_s),
        "resizes": job.resizes,
        "suspensions": job.suspensions,
        "flaps": job.flaps,
        "faults": job.faults,
    }


def _from_zero(curves: dict[str, list[float]], start: float) -> dict[str, list[float]]:
    return {**curves, "t_s": [round(at - start, 3) for at in curves["t_s"]]}


def _round(value: float) -> float:
    return round(value, 3)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 5) if whole else None
