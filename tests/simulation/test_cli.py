"""The command line from end to end: files, exit status, and nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.simulator import cli
from controlplane.simulator.run import Simulation

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    document = {
        "pools": [{"name": "n", "count": 4, "accelerators": 8}],
        "inference": [{"hours": [0, 8] * 12, "accelerators_per_pod": 8}],
        "jobs": [
            {"name": f"j{i}", "submit_s": 60 * i, "accelerators": 16, "accelerators_per_pod": 8,
             "duration_s": 4000, "min_replicas": 1, "max_replicas": 4}
            for i in range(3)
        ],
        "horizon_h": 24,
    }  # fmt: skip
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


def result_of(folder: Path, name: str = "result.json") -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_run(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out"
    assert cli.main(["run", scenario, "--policy", "ours", "--out", str(out), "--seed", "3"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "result.json"]
    found = result_of(out)
    assert (found["format"], found["policy"], found["seed"]) == (1, "ours", 3)
    assert found["jobs"] == {"submitted": 3, "finished": 3, "unfinished": 0, "stuck": []}
    assert sorted(found) == [
        "capacity", "commands", "cycles", "disruption", "fairness", "first_wait_s", "format",
        "jct_s", "jobs", "per_job", "policy", "queueing_s", "reclaim", "resizes", "scenario",
        "seed", "series", "simulated_s",
    ]  # fmt: skip
    assert "ours: mean JCT" in capsys.readouterr().out


def test_the_page_needs_nothing_else(scenario: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert cli.main(["run", scenario, "--out", str(out)]) == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert '<html lang="en">' in page
    assert page.count('<svg role="img" aria-label=') == page.count("<figcaption>") == 4
    assert "<script" not in page
    assert 'src="' not in page
    assert 'href="http' not in page
    ids = [part.split('"', 1)[0] for part in page.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    again = tmp_path / "again"
    assert cli.main(["run", scenario, "--out", str(again)]) == 0
    assert (again / "report.html").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_compare(scenario: str, tmp_path: Path, jobs: str) -> None:
    out = tmp_path / "out"
    policies = "fifo_backfill,ours:objective=throughput,remaining=unknown,las"
    status = cli.main(
        ["compare", scenario, "--policies", policies, "--out", str(out), "--jobs", jobs]
    )
    assert status == 0
    found = result_of(out, "comparison.json")
    name = "ours:objective=throughput,remaining=unknown"
    assert list(found["policies"]) == ["fifo_backfill", name, "las"]
    assert found["reference"] == "fifo_backfill"
    assert found["policies"]["fifo_backfill"]["against"]["ratio"]["mean"] == 1.0
    assert found["policies"][name]["against"]["ratio"]["n"] == 3
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.json", "fifo_backfill.json", "las.json",
        "ours_objective_throughput_remaining_unknown.json", "report.html",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["run", "nowhere.yaml"], "scenario is 'nowhere.yaml': can't be read"),
        (["run"], "SCENARIO is None: give a scenario or --trace"),
        (["run", "day-256", "--trace", "jobs:x"], "give a scenario or --trace, one of them"),
        (["run", "day-256", "--policy", "nice"], "policy is 'nice': is not known"),
        (["compare", "day-256", "--policies", "las,las"], "must name each policy once"),
    ],
)
def test_bad_arguments_have_their_own_status(
    arguments: list[str], want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main([*arguments, "--out", str(out)]) == 2
    assert want in capsys.readouterr().err
    assert not out.exists()


def test_a_place_that_cannot_be_written(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    out = tmp_path / "file" / "out"
    assert cli.main(["run", scenario, "--out", str(out), "--no-page"]) == 2
    assert "Can't write the results" in capsys.readouterr().err


def test_without_matplotlib_the_page_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert cli.main(["run", "day-256", "--out", str(tmp_path / "out")]) == 2
    assert "run `make setup` or give --no-page" in capsys.readouterr().err


def test_results_are_not_overwritten_unasked(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "result.json").write_text("mine", encoding="utf-8")
    assert cli.main(["run", scenario, "--out", str(out)]) == 2
    assert "choose another or give --force" in capsys.readouterr().err
    assert (out / "result.json").read_text(encoding="utf-8") == "mine"
    assert cli.main(["run", scenario, "--out", str(out), "--force", "--no-page"]) == 0
    assert result_of(out)["jobs"]["finished"] == 3


def test_jobs_that_can_never_run_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("name,submit_s,accelerators,work\nhuge,0,64,5\n", encoding="utf-8")
    arguments = ["run", "--trace", f"jobs:{path}", "--nodes", "2", "--out", str(tmp_path / "out")]
    assert cli.main(arguments) == 1
    assert "1 jobs can never run: huge" in capsys.readouterr().err


def test_an_interrupted_run_leaves_nothing(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulation, "run", interrupt)
    out = tmp_path / "out"
    assert cli.main(["run", scenario, "--out", str(out)]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_a_failed_write_leaves_what_was_there(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", full)
    out = tmp_path / "out"
    assert cli.main(["run", scenario, "--out", str(out), "--no-page"]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_ctrl_c_ends_the_process_and_its_workers(tmp_path: Path) -> None:
    """The real thing: a long comparison on two processes, interrupted as a terminal does."""
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "controlplane.simulator", "compare", "day-256",
        "--policies", "ours,ours-without-curves", "--jobs", "2", "--out", str(out),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    group = os.getpgid(process.pid)
    _wait_for_workers(process.pid)
    os.killpg(group, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Interrupted; nothing was written." in errors
    assert not list(tmp_path.iterdir())


def _wait_for_workers(pid: int) -> None:
    """Until the workers are there, as the kernel lists them."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if len(children.read_text(encoding="utf-8").split()) >= 2:
            return
        time.sleep(0.01)
    raise AssertionError("no workers after 30 s")
