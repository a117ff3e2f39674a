"""What the engine is told beside the observation: history, measurements, faults, forecasts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import caches

from apps.clusters.models import Cluster, ClusterSettings
from apps.decisions.models import Plan
from apps.training.models import InflowHour, NodeFault, ScalingPoint, TrainingJob
from controlplane.engine.forecasts import HOURS
from controlplane.engine.snapshot import ClusterSnapshot, DemandHistory, History, Move, NodeHistory
from controlplane.engine.types import WorkloadKey
from tests.builders import make_snapshot
from tests.unit.workers.records import AT, make_cluster_row, make_command_row, make_job_row
from workers import gather

pytestmark = pytest.mark.django_db

NOW = AT.timestamp()
KEY = WorkloadKey("Job", "ml", "llama")


@pytest.fixture(autouse=True)
def _no_forecast_of_another_test() -> None:
    caches["local"].clear()


def inputs(cluster: Cluster, now: float = NOW) -> ClusterSnapshot:
    return gather.inputs(make_snapshot(), cluster, now)


def resized(job: TrainingJob, ago: float, before: int, after: int, state: str = "done") -> None:
    """A command that was written (and ended) so long ago."""
    at = AT - timedelta(seconds=ago)
    written = None if state in ("failed", "refused") else at
    live = state == "applied"
    make_command_row(
        job, to=after, from_replicas=before, state=state, applied_at=written,
        finished_at=None if live else at, kind="admit" if before == after else "resize",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("commands", "moves", "failed"),
    [
        ((), (), ()),
        (((50, 4, 8), (20, 8, 6)), ((50, 4, 8), (20, 8, 6)), ()),
        (((20, 8, 6), (50, 4, 8)), ((50, 4, 8), (20, 8, 6)), ()),
        (((50, 4, 8), (5, 8, 4, "applied")), ((50, 4, 8), (5, 8, 4)), ()),
        # a growth that a reclaim turned round
        (((50, 4, 8, "superseded"), (20, 8, 2)), ((50, 4, 8), (20, 8, 2)), ()),
        # a start at the size that it had is no resize
        (((50, 4, 4),), (), ()),
        # what wasn't written changed nothing
        (((50, 4, 8, "refused"),), (), ()),
        (((50, 4, 8, "failed"),), (), (50,)),
        (((50, 4, 8, "timed_out"),), ((50, 4, 8),), (50,)),
        # only those since the last that succeeded
        (((90, 4, 8, "failed"), (70, 4, 2), (50, 2, 8, "failed"), (20, 2, 8, "timed_out")),
         ((70, 4, 2), (20, 2, 8)), (50, 20)),
        (((90, 4, 8, "failed"), (70, 4, 2)), ((70, 4, 2),), ()),
        # resizes are of interest for an hour, failures for longer
        (((3700, 4, 8), (3500, 8, 4)), ((3500, 8, 4),), ()),
        (((7200, 4, 8, "failed"), (25 * 3600, 4, 8, "failed")), (), (7200,)),
    ],
)  # fmt: skip
def test_histories(
    commands: tuple[Any, ...], moves: tuple[Any, ...], failed: tuple[int, ...]
) -> None:
    cluster = make_cluster_row()
    job = make_job_row(cluster, last_resize_at=AT - timedelta(seconds=7))
    for command in commands:
        resized(job, *command)
    resized(make_job_row(cluster, "other"), 10, 1, 2)
    assert inputs(cluster).history[KEY] == History(
        last_resize_at=NOW - 7,
        resizes=tuple(NOW - ago for ago, _, _ in moves),
        moves=tuple(Move(NOW - ago, before, after) for ago, before, after in moves),
        failed_resizes=tuple(NOW - ago for ago in failed),
    )


def test_reports_carry_what_was_measured() -> None:
    cluster = make_cluster_row()
    job = make_job_row(
        cluster, last_report_at=AT, productive=4, committed_steps=10, total_steps=100,
        global_batch_size=256, resize_cost_s=7.5, running=4, accelerators_per_replica=8,
        attained=1000.0, attained_at=AT - timedelta(seconds=10),
    )  # fmt: skip
    make_job_row(cluster, "silent")
    for replicas, samples, rate, variance in ((4, 9, 100.0, 25.0), (8, 2, 180.0, 1.0)):
        ScalingPoint.objects.create(
            job=job, replicas=replicas, samples=samples, samples_per_s=rate, variance=variance,
            updated_at=AT,
        )  # fmt: skip
    reports = inputs(cluster).reports
    assert list(reports) == [KEY]
    report = reports[KEY]
    assert (report.throughput, report.deviation) == ({4: 100.0, 8: 180.0}, {4: 0.05})
    assert report.resize_cost_s == 7.5
    assert report.attained == 1000.0 + 4 * 8 * 10
    assert report.remaining == 90 * 256


def test_faults_of_nodes_within_the_time_that_counts() -> None:
    cluster = make_cluster_row()
    job = make_job_row(cluster)
    ClusterSettings.objects.create(cluster=cluster, offender_window_s=3600, offender_rest_s=600)
    for node, ago in (("n1", 4200), ("n1", 4100), ("n0", 5), ("n2", 4300)):
        NodeFault.objects.create(
            cluster=cluster, job=job, node_name=node, cause="node_gone",
            at=AT - timedelta(seconds=ago),
        )  # fmt: skip
    assert inputs(cluster).node_history == {
        "n0": NodeHistory((NOW - 5,)),
        "n1": NodeHistory((NOW - 4200, NOW - 4100)),
    }


def test_what_the_last_plan_knew_of_what_waits() -> None:
    cluster = make_cluster_row()
    make_command_row(make_job_row(cluster))
    Plan.objects.update(
        pending=[{"workload": "Pod/ml/p", "history": [NOW - 30, 2, NOW - 100]}, {"workload": "x"}]
    )
    assert inputs(cluster).demand_history == {
        "Pod/ml/p": DemandHistory(NOW - 30, 2, NOW - 100),
    }


@pytest.mark.parametrize(("quantile", "want"), [(None, None), (0.5, 8.0), (0.9, 24.0)])
def test_inflow_only_where_the_cluster_asks_for_it(
    quantile: float | None, want: float | None
) -> None:
    cluster = make_cluster_row()
    ClusterSettings.objects.create(cluster=cluster, forecast_quantile=quantile)
    for weeks, inflow in ((1, 8.0), (2, 24.0)):
        InflowHour.objects.create(
            cluster=cluster, resource="gpu", hour=AT - timedelta(weeks=weeks), inflow=inflow
        )
    found = inputs(cluster).inflow
    if want is None:
        assert found == {}
    else:
        assert (len(found["gpu"]), set(found["gpu"])) == (HOURS, {want})


def test_the_forecast_is_worked_out_once_an_hour(django_assert_num_queries: Any) -> None:
    cluster = make_cluster_row()
    ClusterSettings.objects.create(cluster=cluster, forecast_quantile=0.9)
    assert inputs(cluster).inflow == {}
    InflowHour.objects.create(cluster=cluster, resource="gpu", hour=AT, inflow=3.0)
    assert inputs(cluster, NOW + 1800).inflow == {}
    assert set(inputs(cluster, NOW + 3600).inflow["gpu"]) == {3.0}
