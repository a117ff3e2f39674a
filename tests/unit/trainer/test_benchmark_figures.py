"""What benchmarks read out of a log of commits, and what they say of targets."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import trainer, trainer_downtime, trainer_targets
from tests.benchmarks import trainer_commits as commits
from tests.benchmarks.trainer_commits import Commit

A, B, C, NEW = 1, 2, 3, 4


def steps(pid: int, first: int, *at: float, world: int, epoch: int) -> list[Commit]:
    return [Commit(when, pid, first + n, world, epoch) for n, when in enumerate(at)]


def group(pids: tuple[int, ...], first: int, *at: float, epoch: int) -> list[Commit]:
    """Each step of a group; each process a hundredth of a second after the one before."""
    return [
        each
        for place, pid in enumerate(pids)
        for each in steps(pid, first, *(t + place / 100 for t in at), world=len(pids), epoch=epoch)
    ]


# Three commit a step a second until 3.02; C is killed at 3.5; A and B go on at 5 and 6 as two;
# at 8 all are three again.
KILLED_AT = 3.5
ELASTIC = [
    *group((A, B, C), 1, 1.0, 2.0, 3.0, epoch=1),
    *group((A, B), 4, 5.0, 6.0, epoch=2),
    *group((A, B, NEW), 6, 8.0, 9.0, epoch=3),
]
# All three are restarted, from a checkpoint that lacks the last step.
RESTARTED = [
    *group((A, B, C), 1, 1.0, 2.0, 3.0, epoch=0),
    *group((5, 6, 7), 3, 10.0, 11.0, epoch=1),
]


def test_a_kill_that_survivors_go_on_from() -> None:
    found = commits.kill(ELASTIC, KILLED_AT, C, 3)
    assert found.whole_s == pytest.approx(8.02 - KILLED_AT)
    assert found.next_s == pytest.approx(5.01 - KILLED_AT)
    # From 3.02 to 8.02 three steps were made, each worth one second.
    assert found.lost_s == pytest.approx(5.0 - 3.0)


def test_a_kill_that_restarts_everybody() -> None:
    found = commits.kill(RESTARTED, KILLED_AT, C, 3)
    assert found.whole_s == pytest.approx(10.02 - KILLED_AT)
    assert found.next_s is None
    assert found.lost_s == pytest.approx(7.0)  # step 3 again is no progress


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ([each for each in ELASTIC if each.epoch < 3], "never whole again"),
        ([each for each in ELASTIC if each.at > KILLED_AT], "nothing before"),
        ([each for each in ELASTIC if (each.pid, each.epoch) != (NEW, 3)], "two of three"),
    ],
)
def test_a_log_that_does_not_reach_around_the_kill(log: list[Commit], why: str) -> None:
    with pytest.raises(ValueError, match="no step of 3 replicas around the kill"):
        commits.kill(log, KILLED_AT, C, 3)


def test_the_victims_last_commit_is_nobodys_recovery() -> None:
    """It may be written after the kill was noted, and completes no group."""
    late = [*ELASTIC[:9], *group((A, B, C), 4, 3.6, epoch=1)]
    assert commits.whole_since(late, KILLED_AT, 3) == pytest.approx(3.62)
    assert commits.whole_since(late, KILLED_AT, 3, without=C) is None


def test_steps_are_of_groups_that_stayed() -> None:
    assert commits.step_s(ELASTIC, 3) == pytest.approx(1.0)
    assert commits.step_s(ELASTIC, 2) == pytest.approx(1.0)
    assert commits.step_s(ELASTIC, 4) is None


def test_pauses_are_of_who_waited_longest_less_a_step() -> None:
    log = [
        *group((A, B), 1, 1.0, 2.0, 3.0, epoch=1),
        *group((A, B, C), 4, 4.5, 5.5, epoch=2),
        *group((A, B), 6, 7.0, 8.0, epoch=3),
        *steps(A, 8, 9.3, world=3, epoch=4),
        *steps(B, 8, 9.9, world=3, epoch=4),
    ]
    assert commits.pauses(log, before=2, after=3) == pytest.approx([0.5, 0.89])
    assert commits.pauses(log, before=3, after=2) == pytest.approx([0.5])
    assert commits.pauses(log, before=3, after=4) == []


def test_a_log_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert commits.read(path) == []
    line = {"at": 1.5, "pid": 7, "step": 2, "world": 3, "epoch": 4}
    path.write_text(json.dumps(line) + '\n{"at": 2.')
    assert commits.read(path) == [Commit(1.5, 7, 2, 3, 4)]


def test_stages_are_those_of_lost_replicas() -> None:
    said = (
        "[0:0] [a] recovered (replica_lost) at step 9 in 0.300 s: detect 8 ms, abort 20 ms\n"
        "[1:0] [b] recovered (restart) at step 1 in 9.000 s: detect 900 ms\n"
        "[2:0] [c] recovered (replica_lost) at step 9 in 0.310 s: detect 10 ms, abort 30 ms\n"
    )
    assert trainer_downtime.stages(said) == {"detect": [8.0, 10.0], "abort": [20.0, 30.0]}


FIGURES: dict[str, Any] = {
    "kill_downtime_ms": {"ours_standby": 90.0, "torchrun": 5000.0},
    "kill_lost_ms": {"ours_standby": 150.0, "torchrun": 5000.0},
    "kill_next_commit_ms": {"ours_standby": 400.0},
    "kill_step_ms": {"ours_standby": 200.0},
    "resize_pause_ms": {"join": 301.0, "leave": None},
    "step_ms": 200.0,
    "throughput_ratio_2": 0.97,
    "overhead_ratio": {"redundancy": 0.01, "checksums": 0.005, "instrumentation": 0.004},
    "group_setup_ms": {"32": {"ours": 10.0, "default": 100.0}},
    "state_gib_s": 2.0,
    "transport_gib_s": 2.4,
}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("downtime less than torchrun's, warm standby", True),  # 98.2 % less
        ("training time lost less than torchrun's, warm standby", False),  # 97 % less
        ("survivors' next commit after a kill, ms", True),  # 400 of 1.5 x 200 + 100
        ("pause of a join, ms", False),  # 301 of 200 + 100
        ("pause of a leave, ms", None),
        ("redundancy, checksums and instrumentation, of a step", True),
        ("throughput of 2 replicas, of plain DDP's", True),
        ("group set-up of 32 ranks, of the default's", True),
        ("first batch after a recovery, ms", None),
        ("state from a peer, of the transport's bandwidth", True),
    ],
)
def test_targets(name: str, want: bool | None) -> None:
    assert trainer_targets.judge(FIGURES)[name]["reached"] is want


def test_nothing_measured_reaches_nothing() -> None:
    verdicts = trainer_targets.judge({})
    assert {each["reached"] for each in verdicts.values()} == {None}
    assert trainer_targets.table(verdicts).count("not measured") == len(verdicts)


def test_a_part_that_fails_is_null_with_its_reason_and_the_others_go_on() -> None:
    figures: dict[str, Any] = {}
    report = trainer.Report(figures, rounds=1)

    def fails() -> float:
        raise RuntimeError("no such thing here")

    assert report.measure(["a.b", "a.c"], fails) is None
    assert report.measure(["d"], lambda: 3.0) == 3.0
    assert figures["a"] == {"b": None, "c": None}
    assert figures["missing"] == dict.fromkeys(("a.b", "a.c"), "RuntimeError: no such thing here")


def test_a_part_that_is_not_there_says_so() -> None:
    report = trainer.Report({}, rounds=1)
    report.measure(["x"], lambda: trainer.call("trainer_nowhere", "measure"))
    assert "trainer_nowhere" in report.missing["x"]
    report.measure(["x"], lambda: 1)
    assert report.missing == {}  # measured at last


def test_medians_come_with_their_spread_and_nothing_is_not_0() -> None:
    figures: dict[str, Any] = {}
    report = trainer.Report(figures, rounds=3)
    report.put_ms("a.b", [0.1, None, 0.4, 0.2])
    report.put_ms("a.c", [None])
    assert figures["a"] == {"b": 200.0, "c": None}
    assert figures["spread_ms"] == {"a.b": {"least": 100.0, "most": 400.0, "n": 3}}
    assert report.missing == {"a.c": "no round gave a value"}


def test_parts_are_chosen_by_name() -> None:
    assert trainer.chosen("pause,kill") == ["kill", "pause"]
    with pytest.raises(argparse.ArgumentTypeError, match="no part nap; there are kill, pause"):
        trainer.chosen("kill,nap")
