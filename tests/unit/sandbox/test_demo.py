"""The demo's demand, its simulated trainers and their reporter; all pure or with fakes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import yaml

from controlplane.engine.policy import ElasticityPolicy, validate
from controlplane.sandbox.clock import ManualClock
from controlplane.sandbox.demo import manifests
from controlplane.sandbox.demo.demand import (
    DAY_SECONDS,
    NIGHT,
    PEAK,
    inference_accelerators,
    replicas_for,
    research_job,
)
from controlplane.sandbox.demo.objects import packing_victims
from controlplane.sandbox.demo.reporter import Refused, Reporter, Target
from controlplane.sandbox.demo.trainer import Member, Progress, Trainer
from controlplane.sandbox.kinds import kind_of
from controlplane.sandbox.store import Store
from trainer_runtime import wire

DAY = 1_700_000_400.0 // DAY_SECONDS * DAY_SECONDS  # a midnight
TARGET = Target("http://127.0.0.1:1", "jt_x", "job-1")


def test_the_day_goes_from_night_to_peak_and_back() -> None:
    curve = [inference_accelerators(DAY + second) for second in range(int(DAY_SECONDS) + 1)]
    assert curve[0] == curve[-1] == NIGHT
    assert max(curve) >= PEAK - 8
    assert min(curve) >= NIGHT
    assert max(curve) <= PEAK
    steps = [abs(b - a) for a, b in itertools.pairwise(curve)]
    assert max(steps) < 1.5, "smooth: no jump within a second"
    assert inference_accelerators(DAY + 30, speed=1.0) != inference_accelerators(DAY + 30, seed=1)


@pytest.mark.parametrize(
    ("need", "each", "want"), [(32, 4, 8), (33, 4, 9), (128, 4, 32), (5, 2, 3)]
)
def test_replicas(need: float, each: int, want: int) -> None:
    assert replicas_for(need, each) == want


def test_research_is_seeded_and_moderate() -> None:
    jobs = [research_job(slot) for slot in range(2000)]
    assert jobs == [research_job(slot) for slot in range(2000)]
    arrived = [job for job in jobs if job]
    assert 0.25 < len(arrived) / 2000 < 0.45
    assert {job.accelerators for job in arrived} == {1, 2, 4, 8}
    # accelerators held on average: rate x size x time (Little)
    held = sum(job.accelerators * job.seconds for job in arrived) / (2000 * 4.0)
    assert 10 < held < 32


@pytest.mark.parametrize(
    ("pods", "leaving", "want"),
    [
        ([("a", "n1"), ("b", "n1"), ("c", "n2")], 1, ["c"]),
        ([("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")], 2, ["a", "b"]),
        ([("a", "n1"), ("b", ""), ("c", "n1")], 1, ["b"]),
        ([("a", "n1")], 5, ["a"]),
    ],
)
def test_victims_free_whole_nodes(
    pods: list[tuple[str, str]], leaving: int, want: list[str]
) -> None:
    assert packing_victims(pods, leaving) == want


def test_manifests_are_accepted_and_name_policies_that_exist() -> None:
    path = Path(manifests.__file__).with_name("policies.yaml")
    policies = yaml.safe_load(path.read_text())["elasticity_policies"]
    for fields in policies:
        values = {key: value for key, value in fields.items() if key != "description"}
        assert validate(ElasticityPolicy(**values)) == []
    store = Store(clock=ManualClock())
    everything = [
        *map(manifests.namespace, manifests.NAMESPACES),
        *map(manifests.priority_class, manifests.PRIORITIES),
        manifests.inference(8),
        manifests.authority("127.0.0.1", 8003),
        manifests.real_job("127.0.0.1:8003", "/tmp/checkpoints"),
        *map(manifests.simulated_job, manifests.SIMULATED),
    ]
    arrived = next(job for job in map(research_job, range(100)) if job)
    for manifest in [*everything, manifests.research(arrived)]:
        store.create(kind_of(manifest["kind"]), manifest)
    names = {fields["name"]: fields["min_replicas"] for fields in policies}
    for job in manifests.SIMULATED:
        assert names[job.policy] == job.min_replicas


def make_trainer(seq: int = 0) -> Trainer:
    return Trainer(manifests.SIMULATED[0], Progress("sim-1", seq=seq), random.Random(3))


def make_members(*indexes: int, ready: bool = True, leaving: tuple[int, ...] = ()) -> list[Member]:
    return [Member(i, f"atlas-{i}", ready, i in leaving) for i in indexes]


def run_for(
    trainer: Trainer, start: float, seconds: float, pods: list[Member]
) -> list[wire.Message]:
    sent: list[wire.Message] = []
    for tick in range(int(seconds * 2) + 1):
        sent += trainer.advance(start + tick / 2, pods)
    return sent


def kinds_of(messages: list[wire.Message]) -> list[str]:
    """In order, repeated kinds once."""
    found = [message.kind.value for message in messages]
    return [kind for i, kind in enumerate(found) if i == 0 or found[i - 1] != kind]


def test_trainer_waits_below_its_minimum_then_trains() -> None:
    trainer = make_trainer()
    sent = run_for(trainer, 1000.0, 20, make_members(0))
    assert kinds_of(sent) == ["heartbeat"]
    assert {m.state for m in sent if isinstance(m, wire.Heartbeat)} == {wire.TrainerState.WAITING}
    sent = run_for(trainer, 1021.0, 30, make_members(0, 1))
    assert kinds_of(sent)[0] == "membership"
    steps = [m for m in sent if isinstance(m, wire.Step)]
    assert [m.step for m in steps] == sorted({m.step for m in steps})
    assert steps[-1].world_size == 2
    assert steps[-1].samples_per_s == pytest.approx(62 * 2**0.93, rel=0.35)


def test_growth_and_shrink_are_scale_events_with_a_pause() -> None:
    trainer = make_trainer()
    run_for(trainer, 1000.0, 30, make_members(0, 1))
    sent = run_for(trainer, 1031.0, 10, make_members(0, 1, 2, 3))
    [scale] = [m for m in sent if isinstance(m, wire.Scale)]
    assert (scale.from_replicas, scale.to_replicas) == (2, 4)
    assert scale.joined == ("atlas-2", "atlas-3")
    assert scale.pause_s is not None
    assert 1 < scale.pause_s < 3
    sent = run_for(trainer, 1042.0, 10, make_members(0, 1, 2, 3, leaving=(3,)))
    [scale] = [m for m in sent if isinstance(m, wire.Scale)]
    assert (scale.to_replicas, scale.left) == (3, ("atlas-3",))
    assert not [m for m in sent if isinstance(m, wire.Recovery)]


def test_a_lost_replica_is_a_recovery_with_its_stages() -> None:
    trainer = make_trainer()
    run_for(trainer, 1000.0, 30, make_members(0, 1, 2))
    sent = run_for(trainer, 1031.0, 10, make_members(0, 2))
    [recovery] = [m for m in sent if isinstance(m, wire.Recovery)]
    assert recovery.lost == ("atlas-1",)
    assert [stage.stage for stage in recovery.stages] == list(wire.RecoveryStage)
    assert sum(stage.duration_s for stage in recovery.stages) == pytest.approx(recovery.duration_s)


def test_throughput_is_concave_and_loss_falls() -> None:
    trainer = make_trainer()
    rates = []
    for size in (2, 4, 8, 16):
        trainer.members = tuple(str(i) for i in range(size))
        rates.append(trainer.samples_per_s())
    gains = [b / a for a, b in itertools.pairwise(rates)]
    assert all(1.5 < gain < 2 for gain in gains)
    early = trainer.loss()
    trainer.progress.step = 5000
    assert trainer.loss() < early - 2


def test_everything_can_be_sent() -> None:
    trainer = make_trainer(seq=41)
    sent = run_for(trainer, 1000.0, 20, make_members(0, 1, 2))
    sent += run_for(trainer, 1021.0, 20, make_members(0, 1))
    envelope = wire.Envelope(job="j", attempt="a", sent_at=1.0, messages=tuple(sent))
    assert wire.decode(wire.encode(envelope)) == envelope
    assert sent[0].seq == 42


def heartbeats(first: int, count: int) -> list[wire.Message]:
    state = wire.TrainerState.TRAINING
    return [wire.Heartbeat(seq=first + i, at=1.0, state=state) for i in range(count)]


@pytest.mark.parametrize(
    ("failure", "want_left", "want_secret_reads"),
    [
        (None, 0, 1),
        (OSError("connection refused"), 3, 1),
        (Refused(503, "busy"), 3, 1),
        (Refused(401, "rotated"), 3, 2),
        (Refused(400, "never"), 0, 1),
    ],
)
def test_reporter_keeps_what_was_not_taken(
    failure: Exception | None, want_left: int, want_secret_reads: int
) -> None:
    reads, bodies = [], []

    def find() -> Target:
        reads.append(1)
        return TARGET

    def send(target: Target, body: bytes) -> None:
        bodies.append(wire.decode(body))
        if failure is not None and len(bodies) == 1:
            raise failure

    reporter = Reporter("atlas", "sim-1", find, send)
    reporter.add(heartbeats(1, 3))
    reporter.send_once(5.0)
    assert reporter.waiting == want_left
    if want_left:
        assert reporter.send_once(6.0)
        assert bodies[0].messages == bodies[1].messages, "the same again, nothing lost"
    assert reporter.waiting == 0
    assert len(reads) == want_secret_reads


def test_reporter_waits_for_the_secret_and_its_buffer_is_bounded() -> None:
    reporter = Reporter("atlas", "sim-1", lambda: None, lambda *_: None)
    reporter.add(heartbeats(1, 12_000))
    assert not reporter.send_once(5.0)
    assert reporter.waiting == 10_000
