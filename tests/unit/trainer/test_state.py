"""Packed state and checkpoints: exact, verified, whole or refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer_runtime import checkpoint
from trainer_runtime.replica import ReplicaState
from trainer_runtime.sampler import ElasticSampler
from trainer_runtime.state import (
    Packed,
    StateError,
    pack,
    random_state,
    set_random_state,
    unpack,
)

TREE: dict[str, Any] = {
    "floats": torch.arange(5, dtype=torch.float32) / 3,
    "more": [torch.ones(2, 3, dtype=torch.float64), (torch.tensor(7), None, "text", 1.5)],
    "half": torch.tensor([1.5], dtype=torch.bfloat16),
    "none": torch.zeros(0),
    3: {"strided": torch.arange(6).view(2, 3).t()},
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(map(same, one, other))
    return one == other


def test_tree_comes_back() -> None:
    assert same(unpack(pack(TREE)), TREE)
    assert same(unpack(pack({"no": "tensor"})), {"no": "tensor"})


@pytest.mark.parametrize("part", ["head", "data"])
def test_one_flipped_bit_is_found(part: str) -> None:
    packed = pack(TREE)
    head, data = bytearray(packed.head), packed.data.clone()
    if part == "head":
        head[len(head) // 2] ^= 1
    else:
        data[9] ^= 1
    with pytest.raises(StateError, match="is damaged: xxh3"):
        unpack(Packed(bytes(head), data, packed.checksum))


def test_packed_state_runs_no_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    packed = pack({"evil": Evil()})
    with pytest.raises(Exception, match=r"weights_only|Unsupported"):
        unpack(packed)
    assert not (tmp_path / "ran").exists()


def test_random_state_comes_back() -> None:
    state = unpack(pack(random_state()))
    want = [torch.rand(3).tolist(), random.random(), np.random.rand()]
    set_random_state(state)
    assert [torch.rand(3).tolist(), random.random(), np.random.rand()] == want


def make_replica(seed: int = 0, *, width: int = 4, scheduler: bool = True) -> ReplicaState:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (n + 1))
    sampler = ElasticSampler(20, 4, seed=1)
    return ReplicaState(model, optimizer, sampler, schedule if scheduler else None)


def train(replica: ReplicaState, steps: int = 1) -> list[float]:
    losses = []
    for _ in range(steps):
        replica.optimizer.zero_grad()
        inputs = torch.tensor(replica.sampler.batch(), dtype=torch.float32).view(-1, 1)
        loss = replica.model(inputs.expand(-1, 3)).square().sum()
        loss.backward()
        replica.optimizer.step()
        if replica.scheduler is not None:
            replica.scheduler.step()
        replica.sampler.advance()
        replica.counters.step += 1
        losses.append(loss.item())
    return losses


def test_a_peer_goes_on_alike() -> None:
    source, joiner = make_replica(1), make_replica(2)
    train(source, 3)
    joiner.load(source.pack())
    assert joiner.counters.step == 3
    assert train(joiner, 3) == train(source, 3)


@pytest.mark.parametrize(
    ("other", "want"),
    [
        ({"width": 5}, "model: 0.weight has shape"),
        ({"scheduler": False}, "scheduler: only one of state and script has one"),
    ],
)
def test_state_of_another_script_is_refused_and_changes_nothing(
    other: dict[str, Any], want: str
) -> None:
    replica = make_replica(2, **other)
    parts = ("model", "optimizer", "scheduler", "sampler", "counters")
    before = unpack(replica.pack())
    source = make_replica(1)
    train(source)
    with pytest.raises(StateError, match=want):
        replica.load(source.pack())
    after = unpack(replica.pack())
    # Plain numbers by their text: the loss is not a number yet.
    assert all(same(after[p], before[p]) or str(after[p]) == str(before[p]) for p in parts)


def test_warm_up_leaves_no_trace() -> None:
    def forward_backward(replica: ReplicaState) -> None:
        replica.model(torch.rand(4, 3)).sum().backward()

    warm, cold = make_replica(1), make_replica(1)
    torch.manual_seed(9)
    warm.warm_up(lambda: forward_backward(warm))
    after = torch.rand(1)
    torch.manual_seed(9)
    assert torch.equal(after, torch.rand(1))
    assert same(unpack(warm.pack())["model"], unpack(cold.pack())["model"])
    assert warm.optimizer.state_dict() == cold.optimizer.state_dict()
    assert train(warm, 3) == train(cold, 3)


def test_checkpoint_is_whole_and_the_newest_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    for step in (3, 10, 9, 200):
        checkpoint.write(folder, step, pack({"step": step}))
    assert checkpoint.steps(folder) == [200, 10]
    assert sorted(each.name for each in folder.iterdir()) == [
        "step-000000000010.state", "step-000000000200.state"
    ]  # fmt: skip
    step, packed, problems = checkpoint.newest(folder) or (None, None, None)
    assert (step, problems) == (200, [])
    assert packed is not None
    assert unpack(packed) == {"step": 200}


def damage(path: Path, kind: str) -> None:
    body = bytearray(path.read_bytes())
    match kind:
        case "short":
            del body[-10:]
        case "flipped":
            body[-1] ^= 1
        case "foreign":
            body[:3] = b"xyz"
        case "empty":
            body.clear()
        case "header":
            del body[35:]
    path.write_bytes(body)


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("short", "incomplete: "),
        ("flipped", "is damaged"),
        ("foreign", "not a checkpoint of this format"),
        ("empty", "not a checkpoint of this format"),
        ("header", "can't be read"),
    ],
)
def test_damaged_checkpoint_is_passed_over_by_name(tmp_path: Path, kind: str, want: str) -> None:
    checkpoint.write(tmp_path, 1, pack({"t": torch.ones(8)}))
    path = checkpoint.write(tmp_path, 2, pack({"t": torch.ones(8)}))
    damage(path, kind)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found[0] == 1
    assert str(path) in found[2][0]
    assert want in found[2][0]


def test_only_damaged_checkpoints_are_no_fresh_start(tmp_path: Path) -> None:
    damage(checkpoint.write(tmp_path, 1, pack({})), "short")
    with pytest.raises(StateError, match="no checkpoint is whole"):
        checkpoint.newest(tmp_path)


def test_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "absent") is None
    (tmp_path / ".step-000000000001.state.77.partial").write_bytes(b"half")
    assert checkpoint.newest(tmp_path) is None


def test_failed_write_publishes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        checkpoint.write(tmp_path / "file", 1, pack({}))
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
