"""What the trainer's figures shall reach, and whether they do. Pure; nothing fails for missing one.

A target compares figures of one run, so that it holds for any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """`got(figures)` shall be at most, or at least, `limit(figures)`; both raise KeyError or
    TypeError while something they need hasn't been measured."""

    name: str
    got: Callable[[Figures], float]
    limit: Callable[[Figures], float]
    at_most: bool = True


def _less(key: str, ours: str) -> Callable[[Figures], float]:
    """How much less of `key` ours costs than torchrun's restart: 0.98 is 98 % less."""
    return lambda f: 1 - f[key][ours] / f[key]["torchrun"]


def _overhead(figures: Figures) -> float:
    parts = figures["overhead_ratio"]
    return float(parts["redundancy"] + parts["checksums"] + parts["instrumentation"])


def _group_ratio(figures: Figures) -> float:
    at_32 = figures["group_setup_ms"]["32"]
    return float(at_32["ours"] / at_32["default"])


TARGETS = (
    Target("downtime less than torchrun's, warm standby",
           _less("kill_downtime_ms", "ours_standby"), lambda f: 0.98, at_most=False),
    Target("training time lost less than torchrun's, warm standby",
           _less("kill_lost_ms", "ours_standby"), lambda f: 0.98, at_most=False),
    Target("survivors' next commit after a kill, ms",
           lambda f: f["kill_next_commit_ms"]["ours_standby"],
           lambda f: 1.5 * f["kill_step_ms"]["ours_standby"] + 100),
    Target("pause of a join, ms", lambda f: f["resize_pause_ms"]["join"],
           lambda f: f["step_ms"] + 100),
    Target("pause of a leave, ms", lambda f: f["resize_pause_ms"]["leave"],
           lambda f: f["step_ms"] + 100),
    Target("redundancy, checksums and instrumentation, of a step", _overhead, lambda f: 0.03),
    Target("instrumentation, of a step",
           lambda f: f["overhead_ratio"]["instrumentation"], lambda f: 0.01),
    Target("throughput of 2 replicas, of plain DDP's",
           lambda f: f["throughput_ratio_2"], lambda f: 0.97, at_most=False),
    Target("group set-up of 32 ranks, of the default's", _group_ratio, lambda f: 0.25),
    Target("first batch after a recovery, ms",
           lambda f: f["first_batch_after_recovery_ms"], lambda f: 10.0),
    Target("state from a peer, of the transport's bandwidth",
           lambda f: f["state_gib_s"] / f["transport_gib_s"], lambda f: 0.8, at_most=False),
)  # fmt: skip


def judge(figures: Figures) -> dict[str, dict[str, Any]]:
    """By target: `got`, `limit`, `at_most`, and whether it is `reached` (null: not measured)."""
    return {target.name: _verdict(target, figures) for target in TARGETS}


def _verdict(target: Target, figures: Figures) -> dict[str, Any]:
    verdict = {"got": None, "limit": None, "at_most": target.at_most, "reached": None}
    try:
        got, limit = float(target.got(figures)), float(target.limit(figures))
    except (KeyError, TypeError):
        return verdict
    reached = got <= limit if target.at_most else got >= limit
    return verdict | {"got": round(got, 4), "limit": round(limit, 4), "reached": reached}


def table(verdicts: dict[str, dict[str, Any]]) -> str:
    """One line a target."""
    lines = []
    for name, verdict in verdicts.items():
        word = {True: "reached", False: "MISSED", None: "not measured"}[verdict["reached"]]
        sign = "<=" if verdict["at_most"] else ">="
        numbers = f"{verdict['got']:g} {sign} {verdict['limit']:g}" if verdict["limit"] else ""
        lines.append(f"{word:>12}  {name:<56} {numbers}".rstrip())
    return "\n".join(lines)
