"""Behaviour of a measured application, on small tables whose values are exact."""

from pathlib import Path

import pytest

from controlplane.simulator.measured import Application
from controlplane.simulator.tables import StepTimes, smallest_rotation

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,10,1.0,0.0
1,20,2.0,0.0
2,10,1.5,0.5
2,20,2.5,0.5
12,10,2.0,1.0
12,20,3.0,1.0
22,10,2.2,1.2
22,20,3.2,1.2
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
4,4,10,4.0,3.0
4,4,20,5.0,3.0
4,8,10,6.0,5.0
4,8,20,8.0,5.0
"""
# at 20: noise equals signal; at 80: no noise, so a larger batch brings nothing
VALIDATION = {
    20: [(100, 1.0, 1.0), (200, 1.0, 3.0)],
    80: [(90, 1.0, 3.0), (210, 1.0, 1.0)],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "placements.csv").write_text(PLACEMENTS)
    (folder / "scalability.csv").write_text(SCALABILITY)
    for batch, rows in VALIDATION.items():
        lines = ["progress,iteration,metric,grad_sqr,grad_var"]
        lines += [f"{progress},1,0.5,{sqr},{var}" for progress, sqr, var in rows]
        (folder / f"validation-{batch}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def app(folder: Path) -> Application:
    return Application.read(folder)


@pytest.mark.parametrize(
    ("placement", "want"),
    [((1,), (1,)), ((2, 1), (1, 2)), ((4, 1, 3), (1, 3, 4)), ((1, 4, 3), (1, 4, 3)), ((), ())],
)
def test_a_placement_is_known_by_its_smallest_rotation(placement, want):
    assert smallest_rotation(placement) == want


@pytest.mark.parametrize(
    ("placement", "local", "want"),
    [
        pytest.param((1,), 10, (1.0, 0.0), id="measured"),
        pytest.param((1,), 15, (1.5, 0.0), id="between local batch sizes"),
        pytest.param((2, 1), 10, (2.0, 1.0), id="another rotation"),
        pytest.param((0, 2, 0), 20, (2.5, 0.5), id="nodes it isn't on"),
        pytest.param((1,), 40, (4.0, 0.0), id="beyond the largest local batch size"),
        pytest.param((1,), 5, (1.0, 0.0), id="below the smallest"),
        pytest.param((1, 1), 10, (2.0, 1.0), id="fewer replicas than measured: the fewest"),
        pytest.param((2, 2, 2, 2), 10, (6.0, 5.0), id="by nodes and replicas"),
        pytest.param((2, 2, 1, 1), 10, (5.0, 4.0), id="between replica counts"),
        pytest.param((2, 2, 2), 10, (4.1, 3.1), id="between node counts, at 2 a node"),
        pytest.param((1,) * 8, 10, (6.0, 5.0), id="more nodes than measured: the most"),
    ],
)
def test_step_times(folder, placement, local, want):
    assert StepTimes.read(folder).seconds(placement, local) == pytest.approx(want)


def test_no_placement_has_no_step_time(folder):
    with pytest.raises(ValueError, match="at least one"):
        StepTimes.read(folder).seconds((0, 0), 10)


@pytest.mark.parametrize(
    ("placement", "batch", "want"),
    [
        pytest.param((1,), 20, 2.0, id="in one go"),
        pytest.param((1,), 40, 4.0, id="two parts on one accelerator"),
        pytest.param((2,), 80, 4.5, id="two parts of 20: 2.0 without synchronising, then 2.5"),
        pytest.param((2,), 60, 3.5, id="two parts of 15: 1.5 and 2.0"),
    ],
)
def test_a_large_local_batch_is_accumulated(app, placement, batch, want):
    assert app.step_seconds(placement, batch) == pytest.approx(want)
    assert app.throughput(placement, batch) == pytest.approx(batch / want)


def test_memory_may_allow_fewer_samples_than_were_timed(folder):
    app = Application.read(folder, largest_local=10)
    assert app.step_seconds((2,), 40) == pytest.approx(1.0 + 1.5)


@pytest.mark.parametrize(
    ("batch", "epoch", "want"),
    [
        pytest.param(20, 0, 1.0, id="the initial batch size"),
        # (3 + 1) / (3 / 4 + 1)
        pytest.param(80, 0, 16 / 7, id="four times as large"),
        # (1 + 1) / (1 / 4 + 1)
        pytest.param(80, 1, 8 / 5, id="a later epoch"),
        # gradients half-way: sqr 1, var 2; (2 + 1) / (2 / 2.5 + 1)
        pytest.param(50, 0, 5 / 3, id="between batch sizes"),
    ],
)
def test_gain(app, batch, epoch, want):
    assert app.gain(batch, epoch) == pytest.approx(want)
    assert app.efficiency(batch, epoch) == pytest.approx(want * 20 / batch)


def test_an_epoch_ends_at_the_least_progress_of_any_batch_size(app):
    assert app.ends == [90, 200]
    assert app.total == 200
    assert [app.epoch(at) for at in (0, 89.9, 90, 199, 200)] == [0, 0, 1, 1, 1]


def test_steps_of_a_fixed_batch(app):
    assert app.steps(20) == pytest.approx(200)
    assert app.steps(80) == pytest.approx(90 / (16 / 7) + 110 / (8 / 5))
    assert app.steps(80, progress=145) == pytest.approx(55 / (8 / 5))
    assert app.steps(80, progress=200) == 0


def test_replicas_share_a_batch_down_to_the_smallest_local_one(app):
    assert [app.most_replicas(batch) for batch in (5, 20, 80)] == [1, 2, 8]


@pytest.mark.parametrize(("placement", "epoch"), [((1,), 0), ((2,), 0), ((2, 2), 1)])
def test_the_best_batch_makes_the_most_progress(app, placement, epoch):
    best = app.best_batch(placement, epoch)
    rates = {
        batch: app.progress_rate(placement, batch, epoch)
        for batch in app.candidates
        if batch >= 10 * sum(placement)
    }
    assert rates[best] == max(rates.values())
    assert app.candidates[0] == 20
    assert app.candidates[-1] == 80


def test_a_batch_too_large_for_the_tables_is_the_largest(app):
    assert app.best_batch((2,) * 8, 0) == 80


def test_advance_crosses_epochs_and_stops_at_the_end(app):
    # batch 20 on one accelerator: half a step's progress a second, in every epoch
    assert app.advance(0, (1,), 20, 100) == pytest.approx(50)
    assert app.advance(50, (1,), 20, 200) == pytest.approx(150)
    assert app.advance(150, (1,), 20, 1000) == 200
    first, second = (app.progress_rate((2,), 80, epoch) for epoch in (0, 1))
    want = 90 + second * (200 - 90 / first)
    assert app.advance(0, (2,), 80, 200) == pytest.approx(want)


def test_seconds_to_is_the_inverse_of_advance(app):
    reached = app.advance(30, (2,), 80, 77)
    assert app.seconds_to(reached, 30, (2,), 80) == pytest.approx(77)
    assert app.seconds_to(1e9, 200, (2,), 80) == 0
