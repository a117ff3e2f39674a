"""Readers of published traces and of the simulator's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.simulator.fields import BadInput, Fields
from controlplane.simulator.quick import trace_scenario
from controlplane.simulator.scenario import read
from controlplane.simulator.traces.openb import Row, devices
from tests.builders import GPU
from tests.simulation.worlds import finished, simulate

DATA = Path(__file__).parent / "data"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_own_jobs(tmp_path: Path) -> None:
    path = write(
        tmp_path / "jobs.csv",
        "name,submit_s,duration_s,work,accelerators,accelerators_per_pod,min_replicas,max_replicas,"
        "priority,team,queue\n"
        "a,0,100,,16,8,1,4,7,red,fast\n"
        "b,30,,50,1,,,,,,\n",
    )
    scenario = trace_scenario(f"jobs:{path}", nodes=4, accelerators=8)
    a, b = scenario.jobs
    assert (a.fixed_replicas, a.requests, a.priority, a.team, a.queue) == (
        2, {GPU: 8}, 7, "red", "fast",
    )  # fmt: skip
    assert (a.elasticity.min_replicas, a.elasticity.max_replicas) == (1, 4)
    # 100 s at its fixed size
    assert a.work == pytest.approx(100 * 2**0.9)
    assert (b.fixed_replicas, b.requests, b.work, b.submit_s) == (1, {GPU: 1}, 50.0, 30.0)
    assert finished(simulate(scenario, "fifo_backfill")) == {"a": 105.0, "b": 85.0}


def test_elasticflow() -> None:
    scenario = trace_scenario(
        f"elasticflow:{DATA / 'elasticflow-excerpt.csv'}", nodes=4, accelerators=8
    )
    by_name = {job.name: job for job in scenario.jobs}
    assert len(by_name) == 23
    sizes = sorted({(j.requests[GPU], j.fixed_replicas) for j in scenario.jobs})
    assert sizes == [(1, 1), (8, 1)]
    assert {j.elasticity.max_replicas for j in scenario.jobs} == {4}
    first = scenario.jobs[0]
    assert (first.submit_s, first.team) == (1296698.0, "elasticflow-excerpt")


def test_pods_that_share_are_packed_into_devices() -> None:
    def row(name: str, created: float, deleted: float, milli: int, cpu: int) -> Row:
        return Row(name, cpu, 0, 1, milli, "LS", created, deleted, created)

    found = devices(
        [
            row("a", 0, 100, 600, 4000),
            row("b", 10, 60, 300, 2000),
            row("c", 20, 50, 300, 1000),  # 600 + 300 + 300 is too much: a device of its own
            row("d", 70, 90, 400, 3000),  # b has gone: there is room beside a
            row("e", 200, 210, 100, 100),  # all have gone: a new one
        ]
    )
    assert [(d.since, d.until, d.cpu) for d in found] == [
        (0, 100, 7000),
        (20, 50, 1000),
        (200, 210, 100),
    ]


@pytest.fixture
def openb(tmp_path: Path) -> Path:
    write(
        tmp_path / "nodes.csv",
        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,262144,8,G2\n",
    )
    write(
        tmp_path / "pods.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
        "serve,1000,1024,1,1000,,LS,Running,0,500,0\n"
        "half-1,1000,1024,1,500,,LS,Running,10,500,10\n"
        "half-2,1000,1024,1,500,,LS,Running,20,500,20\n"
        "web,1000,1024,0,0,,LS,Running,0,500,0\n"
        "train,1000,1024,2,1000,,BE,Succeeded,0,110,10\n"
        "never,1000,1024,8,1000,,BE,Pending,0,110,\n",
    )
    return tmp_path


def test_openb(openb: Path) -> None:
    scenario = trace_scenario(f"openb:{openb}", nodes=1, accelerators=1)
    assert {n.name: n.capacity.get(GPU) for n in scenario.nodes} == {"n0": 2, "n1": 8}
    assert scenario.nodes[1].labels["accelerator"] == "G2"
    wanted = {pod.name: (pod.start_s, pod.end_s, pod.requests) for pod in scenario.pods}
    assert wanted == {
        "serve": (0.0, 500.0, {GPU: 1, "cpu": 1000, "memory": 2**30}),
        "web": (0.0, 500.0, {"cpu": 1000, "memory": 2**30}),
        "shared-00000": (10.0, 500.0, {GPU: 1, "cpu": 2000, "memory": 2**31}),
    }
    (job,) = scenario.jobs
    assert (job.name, job.requests[GPU], job.fixed_replicas, job.work) == ("train", 2, 1, 100.0)
    assert len(simulate(scenario, "ours").finished) == 1


def test_a_window_of_a_trace_at_twice_the_load(openb: Path) -> None:
    document = {
        "traces": [{"kind": "openb", "path": str(openb), "from_day": 5 / 86_400,
                    "days": 10 / 86_400, "arrival_scale": 0.5, "training": False}],
    }  # fmt: skip
    scenario = read(Fields(document, "", "test"), openb, "case")
    assert not scenario.jobs
    # from second 5 to 15: those that were there before begin at 0, half-2 comes too late
    assert {pod.name: (pod.start_s, pod.end_s) for pod in scenario.pods} == {
        "serve": (0.0, 497.5),
        "web": (0.0, 497.5),
        "shared-00000": (2.5, 492.5),
    }


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """One measured application: a step takes 1 s at one replica and 0.5 s at two on one node,
    whatever the batch; 100 steps of the initial batch size."""
    folder = tmp_path / "applications" / "app"
    folder.mkdir(parents=True)
    header = "local_bsz,step_time,sync_time\n"
    write(
        folder / "placements.csv",
        f"placement,{header}1,10,1,0\n1,20,1,0\n2,10,0.5,0\n2,20,0.5,0\n",
    )
    write(
        folder / "scalability.csv",
        f"num_nodes,num_replicas,{header}1,1,10,1,0\n1,2,10,0.5,0\n1,2,20,0.5,0\n1,1,20,1,0\n",
    )
    for batch in (20, 40):
        write(
            folder / f"validation-{batch}.csv",
            "progress,iteration,metric,grad_sqr,grad_var\n100,100,0,1,0\n",
        )
    (tmp_path / "workloads-1.0").mkdir()
    return write(
        tmp_path / "workloads-1.0" / "workload-1.csv",
        "name,time,application,num_replicas,batch_size\nfirst,50,app,2,20\n",
    )


def test_pollux(workload: Path) -> None:
    """Submitted at 50, admitted at 60, pause of 30 s, 100 steps of half a second."""
    scenario = trace_scenario(f"pollux:{workload}", nodes=1, accelerators=1)
    assert len(scenario.nodes) == 16
    (job,) = scenario.jobs
    assert (job.work, job.elasticity.min_replicas, job.elasticity.max_replicas) == (100.0, 1, 2)
    assert finished(simulate(scenario, "las")) == {"first": 140.0}
    scaled = simulate(scenario, "ours:batch=scale")
    assert scaled.finished[0].work == 100.0


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("name,submit_s\na,0\n", "column is 'accelerators': is missing"),
        ("name,submit_s,accelerators\na,0,1\n", "duration_s is None: give duration_s or work"),
        ("name,submit_s,accelerators,work\na,-1,1,5\n", "line 2.submit_s is '-1': must be"),
        ("name,submit_s,accelerators,work\na,0,x,5\n", "accelerators is 'x': must be a number"),
        ("name,submit_s,accelerators,work\na,0,1.5,5\n", "must be a whole number"),
        ("name,submit_s,accelerators,work\na,0,1,nan\n", "line 2.work is 'nan': must be a number"),
        ("name,submit_s,accelerators,work\na,0,1,5,6\n", "line 2 is .'6'.: has more cells"),
        ("name,submit_s,accelerators,work,colour\na,0,1,5,red\n", "colour is 'red': is not a f"),
        (
            "name,submit_s,accelerators,work\na,0,1,5\na,0,1,5\n",
            "jobs is 'a': is the name of two jobs",
        ),
        (
            "name,submit_s,accelerators,work,min_replicas,max_replicas\na,0,1,5,3,2\n",
            "line 2.max_replicas is 2: must be at least min_replicas",
        ),
        ("\ufffe", "column is 'name': is missing"),
    ],
)  # fmt: skip
def test_bad_rows_are_refused_by_line_and_column(tmp_path: Path, text: str, want: str) -> None:
    path = write(tmp_path / "jobs.csv", text)
    with pytest.raises(BadInput, match=want) as caught:
        trace_scenario(f"jobs:{path}", nodes=1, accelerators=8)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("jobs", "--trace is 'jobs': must be KIND:PATH"),
        ("slurm:x", "KIND one of jobs, elasticflow, openb, pollux"),
        ("jobs:/nowhere.csv", "path is '/nowhere.csv': there is no /nowhere.csv"),
    ],
)
def test_traces_that_are_not_there(text: str, want: str) -> None:
    with pytest.raises(BadInput, match=want):
        trace_scenario(text, nodes=1, accelerators=8)
