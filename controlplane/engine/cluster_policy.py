"""What an administrator sets for a whole cluster. Everything is optional and off by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """`topology_levels`: node labels from the widest to the narrowest (block, rack, host).
    `spares`: warm capacity, resource -> accelerators that growth leaves free for repairs.
    `reserves`: resource -> accelerators that growth leaves free for inflow of higher priority;
    `forecast_quantile`: the same from the recorded weeks (0 < q < 1), within `forecast_horizon_s`
    from now; the larger of both counts. `max_disruption_ratio`: most of a job's replicas that one
    cycle may reclaim (above 0, up to 1). `terminating_timeout_s`: a pod that should have gone so
    long ago hangs, and is escalated. `offender_faults` within `offender_window_s` make a node a
    repeat offender: avoided until `offender_rest_s` after the last. `departure_notice_s`: a node
    that leaves within this gets no new pods. `bind_timeout_s`: a demand that fits and isn't bound
    for so long gives its place to others for a time."""

    topology_levels: tuple[str, ...] = ()
    spares: Mapping[str, int] = field(default_factory=dict)
    reserves: Mapping[str, int] = field(default_factory=dict)
    forecast_quantile: float | None = None
    forecast_horizon_s: float = 3600.0
    max_disruption_ratio: float = 1.0
    terminating_timeout_s: float = 300.0
    offender_faults: int = 3
    offender_window_s: float = 86_400.0
    offender_rest_s: float = 14_400.0
    departure_notice_s: float = 3600.0
    bind_timeout_s: float = 60.0
