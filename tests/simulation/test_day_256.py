"""One cluster of 256 accelerators breathes for three days: what the project promises of it."""

from __future__ import annotations

from controlplane.simulator.cli import simulate
from controlplane.simulator.scenario import load


def test_day_256() -> None:
    scenario = load("day-256")
    found = simulate(scenario, "ours")
    grace = scenario.jobs[0].elasticity.graceful_shutdown_timeout
    assert found["capacity"]["freed_h"] == 2548.8
    assert found["capacity"]["freed_used_ratio"] >= 0.99
    assert found["capacity"]["freed_productive_ratio"] >= 0.99
    assert found["reclaim"]["wait_s"]["max"] <= grace
    assert found["resizes"]["flaps"] == 0
    assert found["resizes"]["suspensions"] == 0


def test_preempting_whole_jobs_does_not_reach_it() -> None:
    """The same day with the job fixed at its smallest size."""
    found = simulate(load("day-256"), "preempt_whole")
    assert found["capacity"]["freed_used_ratio"] == 0.0
