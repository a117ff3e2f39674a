"""The messages between trainer and control plane."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from trainer_runtime import wire

STEP = {"seq": 4, "kind": "step", "at": 10.5, "step": 7}
RECOVERY = {
    "seq": 5, "kind": "recovery", "at": 11.0, "cause": "replica_lost", "started_at": 10.6,
    "duration_s": 0.4,
    "stages": [{"stage": "detect", "start_s": 0.0, "duration_s": 0.4}],
}  # fmt: skip


def envelope(*messages: Any, **changes: Any) -> dict[str, Any]:
    return {
        "version": 1, "job": "j", "attempt": "a", "sent_at": 12.0, "messages": list(messages)
    } | changes  # fmt: skip


EVERY_KIND = (
    wire.Heartbeat(seq=0, at=1.0, state=wire.TrainerState.TRAINING, quorum_id=3, step=2),
    wire.Membership(
        seq=1, at=1.0, quorum_id=3, world_size=4, members=("a", "b"), min_replicas=1,
        ranks_per_replica=2,
    ),
    wire.Step(seq=2, at=1.0, step=5, loss=2.25, learning_rate=0.001, samples_per_s=80.0),
    wire.Scale(
        seq=3, at=1.0, from_replicas=2, to_replicas=3, quorum_id=4, joined=("c",),
        stages=(wire.StageTime(stage=wire.RecoveryStage.RENDEZVOUS, start_s=0.0, duration_s=1.5),),
    ),
    wire.Recovery(
        seq=4, at=1.0, cause="replica_lost", started_at=0.5, duration_s=0.25, lost=("c",),
        stages=(
            wire.StageTime(stage=wire.RecoveryStage.DETECT, start_s=0.0, duration_s=0.125),
            wire.StageTime(stage=wire.RecoveryStage.FIRST_STEP, start_s=0.125, duration_s=0.125),
        ),
        bytes_moved=2**40, source="a",
    ),
    wire.Checkpoint(seq=5, at=1.0, step=5, complete=True, path="/x", size_bytes=9),
    wire.LogMatch(seq=6, at=1.0, rule="nan", line="loss nan", value=1.5),
    wire.Straggler(seq=7, at=1.0, replica="b", z_score=4.5, work_ms=200.0, median_ms=90.0),
    wire.LogMatch(seq=8, at=1.0, rule="step", missing=True, reason="missing_start"),
    wire.Straggler(seq=9, at=1.0, replica="b", z_score=0.5, cleared=True),
    wire.Step(
        seq=10, at=1.0, step=6, grad_norm=0.5, mfu=0.375, data_wait_ms=1.25, tokens=2**40,
        bytes_moved=12, phases_ms={"data": 1.25, "forward_backward": 150.0},
    ),
)  # fmt: skip


def test_every_kind_comes_back_as_it_was_sent() -> None:
    assert {type(m) for m in EVERY_KIND} == set(wire.CLASS_OF.values())
    sent = wire.Envelope(job="j", attempt="a", sent_at=2.0, messages=EVERY_KIND)
    assert wire.decode(wire.encode(sent)) == sent
    assert wire.decode(json.loads(wire.encode(sent))) == sent


def test_what_is_not_known_is_left_out() -> None:
    sent = wire.Envelope(job="j", attempt="a", sent_at=2.0, messages=(EVERY_KIND[2],))
    message = json.loads(wire.encode(sent))["messages"][0]
    assert message == {
        "kind": "step", "seq": 2, "at": 1.0, "step": 5, "loss": 2.25, "learning_rate": 0.001,
        "samples_per_s": 80.0,
    }  # fmt: skip


def test_unknown_fields_are_ignored() -> None:
    got = wire.decode(envelope(STEP | {"from_the_future": 1}, also_new={}))
    assert got == wire.decode(envelope(STEP))


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (b"{", "(body)", "must be JSON"),
        (b"\xff\xfe", "(body)", "must be JSON"),
        (b"[" * 100_000, "(body)", "must be JSON"),
        ([], "(body)", "must be a JSON object"),
        ({}, "version", "is not known"),
        (envelope(version=2), "version", "reads version 1"),
        (envelope(version=True), "version", "is not known"),
        (envelope(job=""), "job", "must not be empty"),
        (envelope(job=7), "job", "must be text"),
        (envelope(attempt="x" * 65), "attempt", "at most 64"),
        (envelope(sent_at="now"), "sent_at", "must be a number"),
        (envelope(sent_at=1e30), "sent_at", "at most"),
        (envelope(messages=None), "messages", "must be a list"),
        (envelope(messages={"a": 1}), "messages", "must be a list"),
        (envelope(*[STEP] * 1001), "messages", "at most 1000"),
        (envelope(3), "messages[0]", "must be a JSON object"),
        (envelope({"seq": 1}), "messages[0].kind", "is required"),
        (envelope(STEP | {"kind": "dance"}), "messages[0].kind", "must be one of heartbeat,"),
        (envelope(STEP | {"kind": []}), "messages[0].kind", "must be one of"),
        (envelope({"seq": 1, "kind": "step", "at": 1.0}), "messages[0].step", "is required"),
        (envelope(STEP | {"step": None}), "messages[0].step", "is required"),
        (envelope(STEP | {"step": True}), "messages[0].step", "must be a whole number"),
        (envelope(STEP | {"step": 1.0}), "messages[0].step", "must be a whole number"),
        (envelope(STEP | {"step": -1}), "messages[0].step", "must be between 0"),
        (envelope(STEP | {"step": 2**63}), "messages[0].step", "must be between 0"),
        (envelope(STEP | {"loss": float("nan")}), "messages[0].loss", "must be finite"),
        (envelope(STEP | {"loss": 10**400}), "messages[0].loss", "must be finite"),
        (envelope(STEP | {"samples_per_s": -1}), "messages[0].samples_per_s", "at least 0"),
        (envelope(STEP | {"mfu": -0.1}), "messages[0].mfu", "at least 0"),
        (envelope(STEP | {"grad_norm": float("inf")}), "messages[0].grad_norm", "must be finite"),
        (envelope(STEP | {"tokens": 1.5}), "messages[0].tokens", "must be a whole number"),
        (envelope(STEP | {"bytes_moved": -1}), "messages[0].bytes_moved", "between 0"),
        (envelope(STEP | {"data_wait_ms": "1"}), "messages[0].data_wait_ms", "must be a number"),
        (envelope(STEP | {"phases_ms": [1]}), "messages[0].phases_ms", "must be a JSON object"),
        (envelope(STEP | {"phases_ms": {"a": -1}}), "messages[0].phases_ms.'a'", "at least 0"),
        (envelope(STEP | {"phases_ms": {"a": None}}), "messages[0].phases_ms.'a'", "a number"),
        (envelope(STEP | {"phases_ms": {"": 1}}), "messages[0].phases_ms (a name)", "not be empty"),
        (
            envelope(STEP | {"phases_ms": {"x" * 33: 1}}),
            "messages[0].phases_ms (a name)", "at most 32 characters",
        ),
        (
            envelope(STEP | {"phases_ms": {str(i): 1 for i in range(33)}}),
            "messages[0].phases_ms", "at most 32 entries",
        ),
        (
            envelope({"seq": 1, "kind": "membership", "at": 1.0, "quorum_id": 1, "world_size": 1,
                      "members": ["a"], "ranks_per_replica": 0}),
            "messages[0].ranks_per_replica", "between 1",
        ),
        (
            envelope({"seq": 1, "kind": "scale", "at": 1.0, "from_replicas": 1, "to_replicas": 2,
                      "quorum_id": 1, "stages": [{"stage": "abort"}]}),
            "messages[0].stages[0].start_s", "is required",
        ),
        (envelope(RECOVERY | {"source": ""}), "messages[0].source", "must not be empty"),
        (envelope(STEP, STEP), "messages[1].seq", "must rise"),
        (
            envelope(RECOVERY | {"stages": [{"stage": "nap", "start_s": 0, "duration_s": 0}]}),
            "messages[0].stages[0].stage", "must be one of detect, abort, rendezvous",
        ),
        (envelope(RECOVERY | {"stages": "x"}), "messages[0].stages", "must be a list"),
        (envelope(RECOVERY | {"lost": [1]}), "messages[0].lost[0]", "must be text"),
        (envelope(RECOVERY | {"detail": "a\x00b"}), "messages[0].detail", "NUL"),
        (envelope(RECOVERY | {"lost": ["x"] * 5000}), "messages[0].lost", "at most 4096 items"),
    ],
)  # fmt: skip
def test_refused_with_the_field_named(body: Any, field: str, message: str) -> None:
    with pytest.raises(wire.WireError, match=r".") as error:
        wire.decode(body)
    assert error.value.field == field
    assert message in error.value.message
    assert len(str(error.value)) < 400


def test_encode_refuses_what_decode_would() -> None:
    bad = wire.Step(seq=0, at=1.0, step=1, loss=float("inf"))
    with pytest.raises(wire.WireError, match=r"messages\[0\].loss: must be finite"):
        wire.encode(wire.Envelope(job="j", attempt="a", sent_at=1.0, messages=(bad,)))


@pytest.mark.parametrize("module", ["wire", "membership", "protocol", "telemetry", "drain"])
def test_import_leaves_torch_out(module: str) -> None:
    code = (
        f"import sys, trainer_runtime.{module}; "
        "sys.exit(any(m.split('.')[0] in ('torch', 'numpy', 'django') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
