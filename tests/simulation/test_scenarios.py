"""Scenarios: what is read, and what is refused with field, value and remedy."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.engine.types import Objective, ReclaimPolicy
from controlplane.simulator.cli import simulate
from controlplane.simulator.fields import BadInput
from controlplane.simulator.policies import POLICIES
from controlplane.simulator.policies.ours import CHOICES
from controlplane.simulator.scenario import load
from controlplane.simulator.spec import Costs, Cycle, Scenario
from controlplane.simulator.traces import READERS
from tests.builders import GPU

ROOT = Path(__file__).resolve().parents[2]
COSTS = tuple(field.name for field in dataclasses.fields(Costs))
CYCLE = tuple(field.name for field in dataclasses.fields(Cycle))
#: what `jobs.job_of` reads
JOB_FIELDS = (
    "name", "submit_s", "duration_s", "work", "accelerators", "accelerators_per_pod",
    "pods_per_replica", "min_replicas", "max_replicas", "priority", "priority_class", "team",
    "queue", "weight", "cpu", "memory_gib", "node_selector", "topology", "topology_required",
    "exponent", "spread_loss", "throughput", "victims", "elasticity",
)  # fmt: skip


def document(**fields: Any) -> dict[str, Any]:
    """Two nodes and one job."""
    values: dict[str, Any] = {
        "pools": [{"name": "n", "count": 2, "accelerators": 8}],
        "jobs": [{"name": "a", "accelerators": 8, "duration_s": 100}],
    }
    return values | fields


def read(folder: Path, found: object) -> Scenario:
    path = folder / "case.yaml"
    path.write_text(found if isinstance(found, str) else yaml.safe_dump(found), encoding="utf-8")
    return load(str(path))


def test_everything_that_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "curve.csv").write_text("time_s,accelerators\n0,2\n100,0\n", encoding="utf-8")
    (tmp_path / "events.csv").write_text("time_s,kind,node\n5,cordon,n-1\n", encoding="utf-8")
    scenario = read(
        tmp_path,
        document(
            start="2025-06-01T12:00:00+02:00",
            horizon_h=2,
            faults={"mtbf_h": 10, "mttr_h": 2},
            events=[{"time_s": 9, "kind": "drain", "node": "n-0", "notice_s": 4, "duration_s": 60}],
            events_csv="events.csv",
            inference=[{"name": "chat", "csv": "curve.csv", "accelerators_per_pod": 2}],
            elasticity={"cooldown": 7, "restart_budget": 3},
            costs={"resize_pause_s": 1, "restart": True, "fault_pause_s": 9},
            cycle={"period_s": 15, "on_events": False},
            queues={"default": {"objective": "throughput", "cohort": "all",
                                "quotas": {GPU: {"nominal": 8, "borrowing_limit": 4}}}},
            cohorts={"all": {"quotas": {GPU: {"nominal": 2}}}},
            preemption={"inference": "PreemptWhole"},
            cluster={"topology_levels": ["rack"], "spares": {GPU: 1}, "offender_faults": 2},
        ),
    )  # fmt: skip
    assert scenario.start == 1_748_772_000.0
    assert scenario.horizon_s == 7200.0
    assert (scenario.faults.mtbf_s, scenario.faults.mttr_s) == (36_000.0, 7200.0)
    assert [(e.at_s, e.kind, e.node, e.duration_s) for e in scenario.events] == [
        (5.0, "cordon", "n-1", math.inf),
        (9.0, "drain", "n-0", 60.0),
    ]
    assert [(p.name, p.start_s, p.end_s) for p in scenario.pods] == [("chat-0-0", 0.0, 100.0)]
    assert (scenario.costs.restart, scenario.costs.fault_pause_s) == (True, 9.0)
    assert (scenario.cycle.period_s, scenario.cycle.on_events) == (15.0, False)
    policy = scenario.jobs[0].elasticity
    assert (policy.cooldown, policy.restart_budget) == (7, 3)
    queue = scenario.policies.queues["default"]
    assert (queue.objective, queue.quotas[GPU].borrowing_limit) == (Objective.THROUGHPUT, 4)
    assert scenario.policies.cohorts["all"].quotas[GPU].nominal == 2
    assert scenario.policies.preemption == {"inference": ReclaimPolicy.PREEMPT_WHOLE}
    cluster = scenario.policies.cluster
    assert (cluster.topology_levels, cluster.spares, cluster.offender_faults) == (
        ("rack",), {GPU: 1}, 2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "want"),
    [
        ([], "document is .*: must be a mapping"),
        ("a: [", "is no YAML"),
        ({"jobs": []}, "pools is None: give at least one pool"),
        (document(pools=[{"name": "n", "count": 0}]), r"pools\[0\].count is 0: must be a number"),
        (document(pools=[{"count": 1}]), r"pools\[0\].name is None: .*missing"),
        (document(pools=[{"name": "n", "count": 1, "accelerators": 8}] * 2), "two pools share one"),
        (document(colour="red"), "colour is 'red': is not a field here; the fields are "),
        (document(horizon_h=0), "horizon_h is 0: must be a number, above 0"),
        (document(start="noon"), "start is 'noon': must be a date and time"),
        (document(packing="loose"), "packing is 'loose': must be one of packed, spread"),
        (document(costs={"resize_pause_s": -1}), "costs.resize_pause_s is -1: must be a number, 0"),
        (document(costs={"restart": "yes"}), "costs.restart is 'yes': must be true or false"),
        (document(cycle={"period_s": 0}), "cycle.period_s is 0: must be a number, above 0"),
        (document(faults={"mtbf": 3}), "faults.mtbf is 3: is not a field here"),
        (document(elasticity={"cooldown": -3}), "cooldown is -3: must be a finite number"),
        (document(elasticity={"speed": 3}), "elasticity.speed is 3: is not a field here"),
        (
            document(events=[{"time_s": 1, "kind": "fail", "node": "x"}]),
            r"events\[0\].node is 'x': is no node; they are called like n-0",
        ),
        (
            document(events=[{"time_s": 1, "kind": "burn", "node": "n-0"}]),
            "kind is 'burn': must be one of fail, recover, cordon, uncordon, drain",
        ),
        (
            document(jobs=[{"name": "a", "accelerators": 9, "work": 1, "accelerators_per_pod": 8}]),
            r"jobs\[0\].accelerators is 9: must be a multiple of a replica's \(8\)",
        ),
        (
            document(jobs=[{"name": "a", "accelerators": 8, "work": 1, "throughput": {0: 3}}]),
            r"jobs\[0\].throughput is {0: 3}: must be a mapping of replica counts",
        ),
        (document(inference=[{"name": "i"}]), "give one of hours, points, sinusoid or csv"),
        (document(inference=[{"hours": [1, 2]}]), "must be 24 numbers"),
        (document(inference=[{"points": [[3, 1], [2, 1]]}]), "hours rising from 0"),
        (document(inference=[{"points": [[0, -1]]}]), "accelerators of 0 or more"),
        (document(inference=[{"sinusoid": {"low": 5, "high": 2}}]), r"must be at least low \(5\)"),
        (document(inference=[{"csv": "no.csv"}]), "csv is 'no.csv': there is no "),
        (document(queues={"q": {"objective": "speed"}}), "queues.q.objective is 'speed': must"),
        (document(queues={"q": {"share_floor": 2}}), "queues.q.share_floor is 2.0: must"),
        (document(preemption={"x": "All"}), "preemption.x is 'All': must be one of Never"),
        (document(cluster={"max_disruption_ratio": 2}), "max_disruption_ratio is 2: must be"),
        (document(traces=[{"kind": "jobs"}]), r"traces\[0\].path is None: .*missing"),
        (document(traces=[{"kind": "slurm"}]), "kind is 'slurm': must be one of jobs"),
    ],
)  # fmt: skip
def test_bad_scenarios_are_refused(tmp_path: Path, found: object, want: str) -> None:
    with pytest.raises(BadInput, match=want) as caught:
        read(tmp_path, found)
    assert caught.value.field
    assert caught.value.remedy


def test_a_scenario_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(BadInput, match="give a file, or one of day-256"):
        load("night-512")


def test_the_same_seed_gives_the_same_result(tmp_path: Path) -> None:
    scenario = read(
        tmp_path,
        document(
            horizon_h=100,
            pools=[{"name": "n", "count": 8, "accelerators": 8}],
            faults={"mtbf_h": 20, "mttr_h": 1},
            jobs=[
                {"name": f"j{i}", "submit_s": 1000 * i, "accelerators": 16, "duration_s": 20_000,
                 "accelerators_per_pod": 8, "min_replicas": 1, "max_replicas": 4}
                for i in range(6)
            ],
        ),
    )  # fmt: skip
    first = simulate(scenario, "ours", seed=1)
    assert first == simulate(scenario, "ours", seed=1)
    assert first != simulate(scenario, "ours", seed=2)
    assert first["disruption"]["faults"] > 0
    assert first["jobs"]["finished"] == 6


def test_the_scenario_of_the_guide_runs(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "simulator.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (tmp_path / "jobs.csv").write_text(
        "name,submit_s,duration_s,accelerators\nx,5,1000,8\n", encoding="utf-8"
    )
    scenario = read(tmp_path, text)
    found = simulate(scenario, "fifo_backfill")
    assert found["jobs"] == {"submitted": 2, "finished": 2, "unfinished": 0, "stuck": []}


@pytest.mark.parametrize("word", [*POLICIES, *CHOICES, *READERS, *JOB_FIELDS, *COSTS, *CYCLE])
def test_the_guide_names_everything_that_can_be_set(word: str) -> None:
    guide = (ROOT / "docs" / "guides" / "simulator.md").read_text(encoding="utf-8")
    found = set(re.findall(r"`([^`\n]+)`", guide))
    prefix = "ours-without"
    assert word in found or (word.startswith(prefix) and word.removeprefix(prefix) in found)
