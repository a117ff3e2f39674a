"""Inflow of inelastic demand by the hour, from the recorded capacity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.clusters.models import Cluster
from apps.training.inflow import expected_inflow, record_inflow
from apps.training.models import InflowHour
from controlplane.engine.forecasts import HOURS, hour_of_week
from tests.rows import GPU, make_capacity, make_cluster, make_job

pytestmark = pytest.mark.django_db

#: a Monday
EIGHT = datetime(2026, 11, 2, 8, tzinfo=UTC)


def held(
    cluster: Cluster, start: datetime, *levels: dict[str, int], resource: str = GPU, every: int = 10
) -> None:
    for n, holders in enumerate(levels):
        at = start + timedelta(minutes=every * n)
        make_capacity(cluster, at, total=64, holders=holders, resource=resource)


def recorded(cluster: Cluster) -> list[tuple[str, str, float]]:
    rows = InflowHour.objects.filter(cluster=cluster).order_by("hour", "resource")
    return [(f"{row.hour:%d %H}", row.resource, row.inflow) for row in rows]


SERVING = "Deployment/prod/chat"
NONE, SOME, MANY = {SERVING: 0}, {SERVING: 8}, {SERVING: 24}


def test_only_what_has_no_policy_is_inflow() -> None:
    cluster = make_cluster()
    make_job(cluster, "llama", policy_name="elastic", phase="succeeded")
    make_job(cluster, "fixed")
    held(
        cluster, EIGHT,
        {SERVING: 8, "Job/ml/llama": 32}, {SERVING: 8, "Job/ml/llama": 56},
        {SERVING: 24, "Job/ml/llama": 40}, {SERVING: 24, "Job/ml/fixed": 8},
        {SERVING: 16}, {SERVING: 16, "notebooks": 2},
    )  # fmt: skip
    assert record_inflow(cluster, EIGHT + timedelta(hours=1)) == 1
    assert recorded(cluster) == [("02 08", GPU, 24.0)]


def test_hours_are_recorded_once_they_are_over_and_never_twice() -> None:
    cluster = make_cluster()
    held(cluster, EIGHT, *[SOME] * 6, *[MANY] * 6)
    held(cluster, EIGHT, *[NONE] * 6, resource="amd.com/gpu")
    assert record_inflow(cluster, EIGHT + timedelta(minutes=59)) == 0
    assert record_inflow(cluster, EIGHT + timedelta(minutes=61)) == 2
    assert record_inflow(cluster, EIGHT + timedelta(minutes=119)) == 0
    assert record_inflow(cluster, EIGHT + timedelta(minutes=120)) == 1
    assert recorded(cluster) == [
        ("02 08", "amd.com/gpu", 0.0), ("02 08", GPU, 0.0), ("02 09", GPU, 16.0),
    ]  # fmt: skip


def test_hours_with_a_hole_stay_unknown() -> None:
    cluster = make_cluster()
    held(cluster, EIGHT, *[SOME] * 3)
    held(cluster, EIGHT + timedelta(hours=1), *[SOME] * 6, *[MANY] * 6)
    record_inflow(cluster, EIGHT + timedelta(hours=3))
    assert [hour for hour, _, _ in recorded(cluster)] == ["02 09", "02 10"]


def test_at_most_a_week_is_made_up_for() -> None:
    cluster = make_cluster()
    held(cluster, EIGHT, *[SOME] * 6)
    assert record_inflow(cluster, EIGHT + timedelta(days=7, hours=1)) == 0
    assert record_inflow(cluster, EIGHT + timedelta(days=7)) == 1


def test_the_forecast_is_of_the_last_four_weeks() -> None:
    cluster, other = make_cluster(), make_cluster("west")
    for weeks, inflow in enumerate((99.0, 8.0, 16.0, 24.0, 32.0)):
        hour = EIGHT + timedelta(weeks=weeks)
        InflowHour.objects.create(cluster=cluster, resource=GPU, hour=hour, inflow=inflow)
        InflowHour.objects.create(cluster=other, resource="amd.com/gpu", hour=hour, inflow=1.0)
    now = EIGHT + timedelta(weeks=4, hours=1)
    at = hour_of_week(EIGHT.timestamp())
    want = {0.25: 8.0, 0.5: 16.0, 0.75: 24.0, 0.9: 32.0}
    assert {q: expected_inflow(cluster, q, now)[GPU][at] for q in want} == want
    found = expected_inflow(cluster, 0.9, now)
    assert (list(found), len(found[GPU])) == ([GPU], HOURS)
    assert expected_inflow(make_cluster("south"), 0.9, now) == {}
