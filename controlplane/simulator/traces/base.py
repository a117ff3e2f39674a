"""What a trace gives to a scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.engine.snapshot import Node
from controlplane.simulator.fields import Fields
from controlplane.simulator.jobs import Book
from controlplane.simulator.spec import DAY_S, JobSpec, PodSpec


def no_nodes(resource: str) -> Sequence[Node]:
    return ()


def no_pods(resource: str) -> Sequence[PodSpec]:
    return ()


def no_jobs(book: Book) -> Sequence[JobSpec]:
    return ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes and inelastic pods by accelerator resource, and jobs by what the scenario says of
    all jobs. A trace that holds none of a sort gives none."""

    nodes: Callable[[str], Sequence[Node]] = no_nodes
    pods: Callable[[str], Sequence[PodSpec]] = no_pods
    jobs: Callable[[Book], Sequence[JobSpec]] = no_jobs


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a trace that is used: `begin_s` becomes time 0. `scale`: arrivals come that much
    closer together (0.1: ten times the load); durations stay."""

    begin_s: float
    end_s: float
    scale: float = 1.0

    def holds(self, at_s: float) -> bool:
        return self.begin_s <= at_s < self.end_s

    def since(self, at_s: float) -> float:
        """A time of the trace as a time of the simulation; below 0 before the window."""
        return (at_s - self.begin_s) * self.scale


def window(fields: Fields) -> Window:
    """Fields `from_day` (of the trace's own time), `days` and `arrival_scale`."""
    begin = fields.number("from_day", 0.0) * DAY_S
    days = fields.optional("days")
    scale = fields.number("arrival_scale", 1.0, above=True, most=1000.0)
    return Window(begin, math.inf if days is None else begin + days * DAY_S, scale)


@dataclass(frozen=True, slots=True)
class Elasticity:
    """How elastic a trace's jobs of fixed size are made: from `min_factor` to `max_factor` times
    their own size, at least one replica."""

    min_factor: float
    max_factor: float

    def bounds(self, fixed: int, most: int) -> tuple[int, int]:
        low = min(fixed, max(1, math.ceil(fixed * self.min_factor)))
        return low, max(fixed, min(most, math.floor(fixed * self.max_factor)))


def elasticity(fields: Fields) -> Elasticity:
    return Elasticity(
        fields.number("min_factor", 0.25, most=1.0),
        fields.number("max_factor", 4.0, least=1.0, most=1024.0),
    )
