"""What is wrong with queues, cohorts and a cluster's settings: by field, with the remedy."""

from __future__ import annotations

import dataclasses

import pytest

from controlplane.engine import cluster_policy, queues
from controlplane.engine.cluster_policy import ClusterPolicy
from controlplane.engine.queues import CohortPolicy, QueuePolicy, Quota

GPU = "nvidia.com/gpu"
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, []),
        ({"quotas": {GPU: Quota(8, 0, 8)}, "reserve_after_s": 0, "share_floor": 1}, []),
        ({"weight": 0}, ["weight"]),
        ({"weight": NAN}, ["weight"]),
        ({"weight": True}, ["weight"]),
        ({"reserve_after_s": -1}, ["reserve_after_s"]),
        ({"reserve_after_s": INFINITE}, ["reserve_after_s"]),
        ({"share_floor": 1.1}, ["share_floor"]),
        ({"quotas": {GPU: Quota(-1)}}, [f"quotas.{GPU}.nominal"]),
        ({"quotas": {GPU: Quota(10_000_001)}}, [f"quotas.{GPU}.nominal"]),
        ({"quotas": {GPU: Quota(1.5)}}, [f"quotas.{GPU}.nominal"]),
        ({"quotas": {GPU: Quota(8, -1)}}, [f"quotas.{GPU}.borrowing_limit"]),
        ({"quotas": {GPU: Quota(8, None, 9)}}, [f"quotas.{GPU}.lending_limit"]),
        ({"quotas": {"cpu": Quota(8)}}, ["quotas.cpu"]),
        ({"weight": -1, "quotas": {"": Quota(True)}}, ["weight", "quotas.", "quotas..nominal"]),
    ],
)
def test_queue(fields, want):
    assert [name for name, _, _ in queues.problems_of(QueuePolicy("a", **fields))] == want


@pytest.mark.parametrize(
    ("quota", "want"),
    [
        (Quota(8), []),
        (Quota(-8), [f"quotas.{GPU}.nominal"]),
        (Quota(8, 1), [f"quotas.{GPU}.borrowing_limit"]),
        (Quota(8, None, 0), [f"quotas.{GPU}.lending_limit"]),
    ],
)
def test_cohort(quota, want):
    found = queues.problems_of_cohort(CohortPolicy("team", {GPU: quota}))
    assert [name for name, _, _ in found] == want


def test_a_problem_says_the_value_and_the_remedy():
    assert queues.problems_of_quota(Quota(8, None, 9)) == [
        ("lending_limit", 9, "must not exceed nominal (8): a queue lends only what it owns")
    ]


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, []),
        ({"topology_levels": ("example.com/block", "kubernetes.io/hostname")}, []),
        ({"topology_levels": ("no label",)}, ["topology_levels"]),
        ({"topology_levels": (3,)}, ["topology_levels"]),
        ({"topology_levels": ("a", "a")}, ["topology_levels"]),
        ({"topology_levels": tuple(f"l{i}" for i in range(17))}, ["topology_levels"]),
        ({"spares": {GPU: 8}, "reserves": {GPU: 0}}, []),
        ({"spares": {GPU: -1}}, [f"spares.{GPU}"]),
        ({"spares": {GPU: "8"}}, [f"spares.{GPU}"]),
        ({"reserves": {"memory": 8}}, ["reserves.memory"]),
        ({"forecast_quantile": 0.9, "max_disruption_ratio": 0.5}, []),
        ({"forecast_quantile": 1}, ["forecast_quantile"]),
        ({"forecast_quantile": NAN}, ["forecast_quantile"]),
        ({"max_disruption_ratio": 0}, ["max_disruption_ratio"]),
        ({"max_disruption_ratio": 1.5}, ["max_disruption_ratio"]),
        ({"offender_faults": 0}, ["offender_faults"]),
        ({"offender_faults": 2.0}, ["offender_faults"]),
        *(({name: -1.0}, [name]) for name in cluster_policy.TIMES),
        ({"bind_timeout_s": INFINITE}, ["bind_timeout_s"]),
    ],
)
def test_cluster(fields, want):
    found = cluster_policy.problems_of(ClusterPolicy(**fields))
    assert [name for name, _, _ in found] == want


def test_every_time_is_checked():
    names = {field.name for field in dataclasses.fields(ClusterPolicy)}
    assert {name for name in names if name.endswith("_s")} == set(cluster_policy.TIMES)
