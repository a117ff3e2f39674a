"""Cases small enough to reckon by hand: what the simulator charges for what happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.engine.types import VictimChoice
from controlplane.simulator.model import PowerLaw, TableModel, packed
from controlplane.simulator.results import results
from controlplane.simulator.spec import Costs, Cycle, NodeEvent
from tests.builders import GPU, make_policy
from tests.simulation.worlds import (
    COSTS,
    Scripted,
    finished,
    make_inference,
    make_job,
    make_scenario,
    simulate,
    started,
)


@pytest.mark.parametrize(
    ("costs", "want"),
    [
        # pause 5, then 1000 / 2
        (COSTS, 505.0),
        # pods take 15 s to start
        (replace(COSTS, pod_start_s=15.0), 520.0),
        # a start costs something else than a resize
        (replace(COSTS, start_pause_s=1.0), 501.0),
    ],
)
def test_one_job_alone(costs: Costs, want: float) -> None:
    found = simulate(make_scenario(make_job(), costs=costs), "fifo_backfill")
    assert finished(found) == {"a": want}
    assert results(found, 0)["jct_s"]["mean"] == want


@pytest.mark.parametrize(
    ("moves", "costs", "want"),
    [
        # 95 done at 100; pause until 105; 905 / 2
        ([(0, "a", 1), (100, "a", 2)], COSTS, 557.5),
        # 190 done at 100; the leaving replica holds its place, the other one goes on at 105
        ([(0, "a", 2), (100, "a", 1)], COSTS, 915.0),
        # suspended at 100, started again at 300: 190 done, then a pause and 810 / 2
        ([(0, "a", 2), (100, "a", 0), (300, "a", 2)], COSTS, 710.0),
        # new pods join once they are ready: 95 done from 15 to 110, pause until 115, 905 / 2
        ([(0, "a", 1), (100, "a", 2)], replace(COSTS, pod_start_s=10.0), 567.5),
        # a resize that starts all anew (no grace): 85 done at 100, stands until 115, 915 / 2
        (
            [(0, "a", 1), (100, "a", 2)],
            replace(COSTS, restart=True, leave_s=0.0, pod_start_s=10.0),
            572.5,
        ),
    ],
)
def test_a_resize_costs_its_pause(
    moves: list[tuple[float, str, int]], costs: Costs, want: float
) -> None:
    assert finished(simulate(make_scenario(make_job(), costs=costs), Scripted(*moves))) == {
        "a": want
    }


def test_what_resizes_cost_is_counted() -> None:
    moves = Scripted((0, "a", 1), (100, "a", 2), (150, "a", 1))
    job = make_job(elasticity=make_policy(cooldown=60.0, graceful_shutdown_timeout=60.0))
    found = results(simulate(make_scenario(job), moves), 0)
    # 95 at 100, 90 from 105 to 150, 815 alone from 155
    assert found["jct_s"]["mean"] == 970.0
    assert found["resizes"]["n"] == 2
    assert found["resizes"]["flaps"] == 1
    # pauses of 5 s: 8 accelerators at the start, 16 after growth, 16 while one replica leaves
    assert found["disruption"]["paused_h"] == round((8 + 16 + 16) * 5 / 3600, 3)
    # the leaving replica holds 8 accelerators until 210
    assert found["disruption"]["held_idle_h"] == round(8 * 55 / 3600, 3)
    assert found["capacity"]["training_h"] == round((8 * 970 + 8 * 110) / 3600, 3)


@pytest.mark.parametrize("victims", list(VictimChoice))
def test_a_shrunk_job_grows_again(victims: VictimChoice) -> None:
    moves = Scripted((0, "a", 3), (100, "a", 1), (200, "a", 3))
    found = simulate(make_scenario(make_job(victims=victims)), moves)
    # 285 at 100, 95 until 200, pause until 205, 620 / 3
    assert finished(found) == {"a": round(205 + 620 / 3, 5)}


@pytest.mark.parametrize(
    ("events", "costs", "want"),
    [
        # 190 done at 100; its pod is replaced at 160; pause; 810 / 2
        ([NodeEvent(100.0, "fail", "n00")], COSTS, 570.0),
        # the node is back before that: the pod starts again where it was
        ([NodeEvent(100.0, "fail", "n00", duration_s=20.0)], COSTS, 530.0),
        # ten seconds of work are lost with it: 20 units at two replicas
        ([NodeEvent(100.0, "fail", "n00")], replace(COSTS, lost_work_s=10.0), 580.0),
        # drained with notice: the pod leaves at 150, and its successor is ready at once
        ([NodeEvent(100.0, "drain", "n00", notice_s=50.0)], COSTS, 510.0),
        # cordoned only: nothing happens to what is there
        ([NodeEvent(100.0, "cordon", "n00")], COSTS, 505.0),
        # no spare node: it stands until the node is back at 1100
        (
            [NodeEvent(100.0, "fail", "n00", duration_s=1000.0), NodeEvent(50.0, "cordon", "n02")],
            COSTS,
            1510.0,
        ),
    ],
)
def test_a_node_fails_or_is_drained(events: list[NodeEvent], costs: Costs, want: float) -> None:
    scenario = make_scenario(make_job(), nodes=3, events=tuple(events), costs=costs)
    assert finished(simulate(scenario, "preempt_whole")) == {"a": want}


def test_an_elastic_job_goes_on_without_its_lost_replica() -> None:
    scenario = make_scenario(
        make_job(), nodes=2, events=(NodeEvent(100.0, "fail", "n00", duration_s=200.0),)
    )
    found = simulate(scenario, Scripted((0, "a", 2)))
    # 190 at 100; alone from 105 to 300: 195; pause; 615 / 2
    assert finished(found) == {"a": 612.5}
    assert found.finished[0].faults == 1


def test_a_gang_starts_whole_or_not_at_all() -> None:
    """Three nodes, two jobs of two: the second waits for the first."""
    jobs = (make_job("a"), make_job("b", submit_s=1.0))
    found = simulate(make_scenario(*jobs, nodes=3), "fifo_backfill")
    assert started(found) == {"a": 0.0, "b": 505.0}
    assert finished(found) == {"a": 505.0, "b": 1010.0}


def test_replicas_of_several_pods_are_placed_whole() -> None:
    job = make_job(pods_per_replica=2, requests={GPU: 8}, fixed_replicas=2)
    assert finished(simulate(make_scenario(job, nodes=4), "las")) == {"a": 505.0}
    found = simulate(make_scenario(job, nodes=3), "las")
    assert results(found, 0)["jobs"]["stuck"] == ["a"]


def test_a_job_is_packed_on_the_fewest_nodes() -> None:
    """Six replicas of one accelerator beside two that hold parts of two nodes: one node, not two;
    a spread job pays for each further node."""
    job = make_job(
        requests={GPU: 1}, fixed_replicas=6, work=600.0, model=PowerLaw(1.0, spread_loss=0.5)
    )
    small = [make_inference(f"i{n}", gpus=2) for n in range(2)]
    for packing, want in (("packed", 105.0), ("spread", 205.0)):
        scenario = make_scenario(job, nodes=2, pods=tuple(small), packing=packing)
        assert finished(simulate(scenario, "las")) == {"a": want}


def test_decisions_on_a_grid() -> None:
    """Without events, plans come at multiples of the period: 107 waits until 120, 120 doesn't."""
    jobs = (make_job("a", submit_s=107.0), make_job("b", submit_s=120.0))
    cycle = Cycle(period_s=60.0, on_events=False)
    found = simulate(make_scenario(*jobs, cycle=cycle), "fifo_backfill")
    assert started(found) == {"a": 120.0, "b": 120.0}


@pytest.mark.parametrize(
    ("model", "replicas", "want"),
    [
        (PowerLaw(0.5), 4, 2.0),
        (PowerLaw(1.0, unit=3.0), 2, 6.0),
        (PowerLaw(1.0, spread_loss=0.1), 16, 16 * 0.9),
        (TableModel({2: 10.0, 4: 16.0}), 1, 5.0),
        (TableModel({2: 10.0, 4: 16.0}), 3, 13.0),
        (TableModel({2: 10.0, 4: 16.0}), 9, 16.0),
        (TableModel({2: 10.0, 4: 16.0}), 0, 0.0),
    ],
)
def test_models(model: PowerLaw | TableModel, replicas: int, want: float) -> None:
    assert model.rate(packed(replicas, 8), 0.0) == pytest.approx(want)


@pytest.mark.parametrize("table", [{}, {0: 1.0}, {2: 0.0}])
def test_a_table_without_rates_is_refused(table: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="rates above 0"):
        TableModel(table)
