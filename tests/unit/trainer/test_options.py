"""What a replica is told, the stage clock, and the lines between replica and authority."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.authority import parse
from trainer_runtime.lines import check
from trainer_runtime.options import TrainerOptions
from trainer_runtime.protocol import (
    Peer,
    ProtocolError,
    Quorum,
    from_line,
    parse_address,
    to_line,
)
from trainer_runtime.stages import StageClock
from trainer_runtime.wire import RecoveryStage

ENV = {"CONCERTINA_AUTHORITY": "127.0.0.1:29400"}


@pytest.mark.parametrize(
    ("env", "given", "want"),
    [
        ({"JOB_COMPLETION_INDEX": "3"}, {}, {"replica": "replica-3", "job": "default"}),
        ({"POD_NAME": "job-3", "JOB_COMPLETION_INDEX": "3"}, {}, {"replica": "job-3"}),
        ({"CONCERTINA_REPLICA": "x", "POD_NAME": "job-3"}, {}, {"replica": "x"}),
        ({"CONCERTINA_MIN_REPLICAS": "2"}, {}, {"min_replicas": 2}),
        ({"CONCERTINA_MIN_REPLICAS": "2"}, {"min_replicas": 3}, {"min_replicas": 3}),
        ({"CONCERTINA_CHECKPOINT_DIR": "/c"}, {"seed": None},
         {"checkpoint_dir": Path("/c"), "seed": 0}),
        ({"CONCERTINA_JOB": "7d"}, {"micro_batch": 3}, {"job": "7d", "micro_batch": 3}),
    ],
)  # fmt: skip
def test_options(env: dict[str, str], given: dict[str, Any], want: dict[str, Any]) -> None:
    options = TrainerOptions.from_env(ENV | env, **{"global_batch": 8} | given)
    assert {name: getattr(options, name) for name in want} == want


@pytest.mark.parametrize(
    ("env", "given", "want"),
    [
        ({"CONCERTINA_AUTHORITY": ""}, {}, "CONCERTINA_AUTHORITY: must name the membership"),
        ({"CONCERTINA_AUTHORITY": "here"}, {}, "must be host:port"),
        ({"CONCERTINA_AUTHORITY": "here:99999"}, {}, "must be host:port"),
        ({"CONCERTINA_MIN_REPLICAS": "two"}, {}, "CONCERTINA_MIN_REPLICAS: must be a whole"),
        ({"CONCERTINA_MIN_REPLICAS": "0"}, {}, "min_replicas: must be at least 1"),
        ({}, {"global_batch": 0}, "global_batch: must be at least 1"),
        ({}, {"micro_batch": 9}, "micro_batch: 9 is more than global_batch, 8"),
        ({}, {"total_steps": 0}, "total_steps"),
    ],
)
def test_options_refused(env: dict[str, str], given: dict[str, Any], want: str) -> None:
    with pytest.raises(ValueError, match=want):
        TrainerOptions.from_env(ENV | env, **{"global_batch": 8} | given)


def test_stages_add_up_to_the_downtime() -> None:
    clock = StageClock(100.0, cause="replica_lost")
    clock.end(RecoveryStage.DETECT, 100.5)
    clock.end(RecoveryStage.ABORT, 100.75)
    clock.end(RecoveryStage.RENDEZVOUS, 101.0)
    clock.end(RecoveryStage.RENDEZVOUS, 102.0)  # a second failure in between
    clock.end(RecoveryStage.STATE_RESTORE, 101.5)  # a clock that went back adds nothing
    clock.end(RecoveryStage.FIRST_STEP, 104.0)
    clock.move(RecoveryStage.FIRST_STEP, RecoveryStage.DATA_LOADER, 0.5)
    got = [(s.stage.value, s.start_s, s.duration_s) for s in clock.stages()]
    assert got == [
        ("detect", 0.0, 0.5), ("abort", 0.5, 0.25), ("rendezvous", 0.75, 1.25),
        ("state_restore", 2.0, 0.0), ("data_loader", 2.0, 0.5), ("first_step", 2.5, 1.5),
    ]  # fmt: skip
    assert clock.downtime == 4.0


def test_quorum_comes_back() -> None:
    quorum = Quorum(
        epoch=4, members=(Peer("a#1", "a", 7, False), Peer("b#2", "b", 0, True)), source="a#1",
        origin="peer", store_port=9, prefix="j/i/4", last_step=7, cause="joined", joined=("b",),
    )  # fmt: skip
    assert Quorum.from_dict(from_line(to_line("quorum", **quorum.to_dict()))) == quorum
    assert quorum.rank("b#2") == 1
    assert quorum.names == ("a", "b")


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"kind": 3}', b"\xff", b"[" * 99999])
def test_lines_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        from_line(line)


HELLO = {
    "kind": "hello", "job": "j", "member": "a#1", "name": "a", "epoch": 0, "state_epoch": 0,
    "step": 0, "live": False, "parked": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ({"kind": "dance"}, "kind: 'dance' is not known"),
        (HELLO | {"epoch": "1"}, "epoch: must be int"),
        ({"kind": "park", "epoch": 1, "live": True}, "step: must be int"),
    ],
)
def test_messages_to_the_authority_refused(message: dict[str, Any], want: str) -> None:
    check(HELLO)
    with pytest.raises(ProtocolError, match=want):
        check(message)


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:0"])
def test_addresses_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be host:port"):
        parse_address(address)


def test_addresses() -> None:
    assert parse_address("[::1]:5") == ("::1", 5)


@pytest.mark.parametrize("argv", [["--min-replicas", "0"], ["--silence-s", "0"], ["--port", "x"]])
def test_authority_arguments_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(argv)
    assert argv[0] in capsys.readouterr().err
