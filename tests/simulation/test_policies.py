"""What each policy does with the same work, in cases that can be reckoned by hand."""

from __future__ import annotations

import pytest

from controlplane.engine.types import WorkloadKey
from controlplane.simulator.cluster import VirtualCluster
from controlplane.simulator.fields import BadInput
from controlplane.simulator.policies import ABLATIONS, POLICIES, policy_of
from controlplane.simulator.policies.fixed import LeastAttained
from controlplane.simulator.results import results
from controlplane.simulator.runtime import SimJob
from controlplane.simulator.spec import Costs
from tests.builders import make_policy
from tests.simulation.worlds import (
    finished,
    make_inference,
    make_job,
    make_scenario,
    simulate,
    started,
)

FREE = Costs(resize_pause_s=0.0)
NO_GRACE = {"graceful_shutdown_timeout": 0.0}


def test_fifo_backfills_behind_a_blocked_head() -> None:
    """Four nodes: a holds two, b wants three and blocks nobody, c takes the two that are left."""
    jobs = (
        make_job("a"),
        make_job("b", submit_s=1.0, fixed_replicas=3),
        make_job("c", submit_s=2.0),
    )
    found = simulate(make_scenario(*jobs), "fifo_backfill")
    assert started(found) == {"a": 0.0, "c": 2.0, "b": 507.0}


def test_fifo_takes_nothing_back() -> None:
    jobs = (make_job("a", fixed_replicas=4),)
    scenario = make_scenario(*jobs, pods=(make_inference(start_s=100.0, end_s=400.0),))
    found = results(simulate(scenario, "fifo_backfill"), 0)
    assert found["jct_s"]["mean"] == 255.0
    assert found["reclaim"]["wait_s"]["max"] == 155.0


def test_whole_jobs_are_preempted_the_newest_of_the_lowest_priority_first() -> None:
    jobs = (
        make_job("low-old", priority=1),
        make_job("low-new", priority=1, submit_s=1.0),
        make_job("high", priority=5, submit_s=100.0),
    )
    found = simulate(make_scenario(*jobs), "preempt_whole")
    assert found.reasons == {"admitted": 4, "preempted": 1}
    # low-new leaves at 100, its pods are gone at 160; it has done 188 and starts again at 505
    assert started(found)["high"] == 160.0
    assert finished(found) == {"low-old": 505.0, "high": 665.0, "low-new": 916.0}


def test_preemption_takes_nobody_in_vain() -> None:
    jobs = (
        make_job("low", priority=1),
        make_job("high", priority=5, submit_s=9.0, fixed_replicas=9),
    )
    found = simulate(make_scenario(*jobs), "preempt_whole")
    assert finished(found) == {"low": 505.0}
    assert results(found, 0)["jobs"]["stuck"] == ["high"]


def test_whole_jobs_make_room_for_inference() -> None:
    scenario = make_scenario(
        make_job("a", fixed_replicas=4), pods=(make_inference(start_s=100.0, end_s=300.0),)
    )
    found = results(simulate(scenario, "preempt_whole"), 0)
    assert found["reclaim"]["wait_s"]["max"] == 60.0
    assert found["resizes"]["suspensions"] == 1
    # 380 done at 100; again from 300, when inference has gone: 5 + 620 / 4
    assert found["jct_s"]["mean"] == 460.0


def test_least_attained_service_falls_to_the_second_queue() -> None:
    """One node of eight; the threshold is 100 s of it. a falls behind b, which came later; both
    in the second queue, a came first."""
    fields = {"fixed_replicas": 1, "work": 300.0, "elasticity": make_policy(**NO_GRACE)}
    jobs = (make_job("a", **fields), make_job("b", submit_s=10.0, **fields))
    scenario = make_scenario(*jobs, nodes=1, costs=FREE)
    found = simulate(scenario, LeastAttained(threshold=800.0))
    # plans come every 60 s: a until 120, b until 240 (120 s of service), a to its end
    assert started(found) == {"a": 0.0, "b": 120.0}
    assert finished(found) == {"a": 420.0, "b": 600.0}
    assert results(found, 0)["resizes"]["suspensions"] == 2


def test_least_attained_service_lets_smaller_ones_pass() -> None:
    jobs = (
        make_job("a", fixed_replicas=3),
        make_job("b", fixed_replicas=2, submit_s=1.0),
        make_job("c", fixed_replicas=1, submit_s=2.0),
    )
    assert started(simulate(make_scenario(*jobs), "las"))["c"] == 2.0


def test_the_engine_reclaims_within_the_graceful_time() -> None:
    scenario = make_scenario(
        make_job(work=1e5),
        pods=(make_inference(start_s=1000.0),),
        costs=Costs(resize_pause_s=5.0, leave_s=20.0),
        horizon_s=2000.0,
    )
    found = results(simulate(scenario, "ours"), 0)
    assert found["reclaim"]["wait_s"] == {
        "n": 1, "mean": 20.0, "p50": 20.0, "p90": 20.0, "p99": 20.0, "max": 20.0,
    }  # fmt: skip
    assert found["resizes"]["suspensions"] == 0


def test_the_engine_uses_what_fixed_sizes_leave_idle() -> None:
    scenario = make_scenario(make_job(work=4000.0))
    ours = finished(simulate(scenario, "ours"))["a"]
    assert ours < finished(simulate(scenario, "fifo_backfill"))["a"] == 2005.0


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_ends_the_same_work(name: str) -> None:
    jobs = [make_job(f"j{i}", submit_s=37.0 * i, fixed_replicas=1 + i % 3) for i in range(6)]
    found = simulate(make_scenario(*jobs, pods=(make_inference(start_s=50.0, end_s=500.0),)), name)
    assert len(found.finished) == 6
    assert found.policy.name == name
    attained = sum(job.attained for job in found.finished)
    assert attained == pytest.approx(found.meter.sums["training"], abs=1e-3)
    assert found.meter.sums["training"] + found.meter.sums["inelastic"] <= (
        found.meter.sums["capacity"] + 1e-3
    )


def test_without_growth_sizes_stay_fixed() -> None:
    found = simulate(make_scenario(make_job()), "ours-without-growth")
    assert finished(found) == {"a": 505.0}


def test_without_reclaim_inference_waits() -> None:
    scenario = make_scenario(
        make_job(work=1e5, elasticity=make_policy(max_replicas=4)),
        pods=(make_inference(start_s=1000.0),),
        horizon_s=2000.0,
    )
    assert (
        results(simulate(scenario, "ours-without-reclaim"), 0)["reclaim"]["wait_s"]["max"] == 1000.0
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("nice", "policy is 'nice': is not known; choose one of ours, fifo_backfill"),
        ("las:queues=3", "las takes no options"),
        ("ours:speed=9", "policy option is 'speed': is not known; choose from objective"),
        (
            "ours:remaining=maybe",
            "policy option remaining is 'maybe': must be one of known, unknown",
        ),
    ],
)
def test_policies_that_are_not_there(text: str, want: str) -> None:
    with pytest.raises(BadInput, match=want):
        policy_of(text)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        # nothing is known before the start
        ("curves=known", None),
        ("curves=known,declared=on", (100_000, {1: 1.0, 2: 2.0})),
        ("curves=none,declared=on,remaining=unknown", (None, {})),
    ],
)
def test_what_trainers_tell(options: str, want: tuple[int | None, dict[int, float]] | None) -> None:
    policy = policy_of(f"ours:{options}")
    job = make_job(elasticity=make_policy(max_replicas=2))
    scenario = policy.begin(make_scenario(job))
    cluster = VirtualCluster(scenario)
    key = WorkloadKey("Job", "sim", "a")
    cluster.add_job(SimJob(job, key, job.model, job.work, 0), 0.0)
    report = cluster.snapshot(0.0, policy.told(scenario)).reports.get(key)
    assert (report and (report.total_steps, dict(report.throughput))) == want


def test_options_combine_with_an_ablation() -> None:
    policy = policy_of("ours-without-curves:objective=throughput,batch=scale")
    assert policy.scales_batch
    assert set(ABLATIONS) < set(POLICIES)
