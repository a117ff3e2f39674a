"""What an administrator sets for a whole cluster. Everything is optional and off by default."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.queues import MOST_QUOTA, Problem, problems_of_resource, whole_quota

#: levels of topology that anybody has (Kueue's limit, KEP-2724)
MOST_LEVELS = 16
#: a longer time is a mistake
MOST_SECONDS = 366 * 86_400.0
MOST_FAULTS = 1_000_000
TIMES = (
    "forecast_horizon_s",
    "terminating_timeout_s",
    "offender_window_s",
    "offender_rest_s",
    "departure_notice_s",
    "bind_timeout_s",
)

#: a label key: an optional domain and a name (Kubernetes' qualified name)
_LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


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


def problems_of(policy: ClusterPolicy) -> list[Problem]:
    """(field, value, what is wrong and the remedy); empty if the policy can be used."""
    found = [*_topology(policy), *_amounts(policy), *_ratios(policy)]
    for name in TIMES:
        value = getattr(policy, name)
        if not _finite(value) or not 0 <= value <= MOST_SECONDS:
            found.append((name, value, f"must be seconds, 0 to {MOST_SECONDS:.0f}"))
    faults = policy.offender_faults
    if not _whole(faults) or not 1 <= faults <= MOST_FAULTS:
        found.append(
            ("offender_faults", faults, f"must be a whole number, 1 to {MOST_FAULTS}: a node is "
             "avoided after so many")
        )  # fmt: skip
    return found


def _topology(policy: ClusterPolicy) -> list[Problem]:
    levels = policy.topology_levels
    if len(levels) > MOST_LEVELS:
        return [("topology_levels", list(levels), f"must be at most {MOST_LEVELS} node labels")]
    wrong = [key for key in levels if not (isinstance(key, str) and _LABEL.fullmatch(key))]
    if wrong:
        return [("topology_levels", wrong, "must be node labels, e.g. topology.kubernetes.io/rack")]
    if len(set(levels)) != len(levels):
        return [("topology_levels", list(levels), "must name each label once")]
    return []


def _amounts(policy: ClusterPolicy) -> list[Problem]:
    found: list[Problem] = []
    for name in ("spares", "reserves"):
        for resource, amount in getattr(policy, name).items():
            problem = problems_of_resource(resource)
            if problem:
                found.append((f"{name}.{resource}", resource, problem))
            elif not whole_quota(amount):
                found.append(
                    (f"{name}.{resource}", amount, f"must be a whole number, 0 to {MOST_QUOTA}")
                )
    return found


def _ratios(policy: ClusterPolicy) -> list[Problem]:
    found: list[Problem] = []
    quantile, ratio = policy.forecast_quantile, policy.max_disruption_ratio
    if quantile is not None and not (_finite(quantile) and 0 < quantile < 1):
        found.append(("forecast_quantile", quantile, "must lie between 0 and 1, or be left out"))
    if not (_finite(ratio) and 0 < ratio <= 1):
        found.append(("max_disruption_ratio", ratio, "must be above 0, and at most 1 (no bound)"))
    return found


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
