"""Several policies on the same work, beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.simulator.results import FORMAT, UNFAIR, distribution

#: what is compared: everything of a result but its rows and curves
LEFT_OUT = ("series", "per_job")


def comparison(found: Sequence[dict[str, Any]], reference: str) -> dict[str, Any]:
    """Each policy's figures, and each job's completion time over that under the reference policy
    (`against`): its distribution, and the jobs beyond `UNFAIR` times."""
    by_policy = {result["policy"]: result for result in found}
    base = _times(by_policy[reference])
    return {
        "format": FORMAT,
        "scenario": found[0]["scenario"],
        "seed": found[0]["seed"],
        "reference": reference,
        "policies": {
            name: {
                **{key: value for key, value in result.items() if key not in LEFT_OUT},
                "against": against(_times(result), base),
            }
            for name, result in by_policy.items()
        },
    }


def against(times: dict[str, float], base: dict[str, float]) -> dict[str, Any]:
    """Ratios of completion times, for the jobs that finished under both."""
    ratios = {name: took / base[name] for name, took in times.items() if base.get(name)}
    unfair = sorted((n for n, r in ratios.items() if r > UNFAIR), key=lambda n: (-ratios[n], n))
    return {
        "ratio": distribution(ratios.values()),
        "unfair_beyond": UNFAIR,
        "unfair": [{"job": name, "ratio": round(ratios[name], 3)} for name in unfair],
    }


def _times(result: dict[str, Any]) -> dict[str, float]:
    return {r["name"]: r["jct_s"] for r in result["per_job"] if r["jct_s"] is not None}
