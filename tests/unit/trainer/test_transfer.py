"""A state from several peers to several: exact, whoever sends, and whatever is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.trainer.ranks import MemoryGroup, Post, on_ranks
from tests.unit.trainer.test_state import make_replica, same, train
from trainer_runtime import transfer
from trainer_runtime.rendezvous import start
from trainer_runtime.state import StateError, lay_out, pack, unpack
from trainer_runtime.transfer import hand_over

CHUNK = 128


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "CHUNK_BYTES", CHUNK)


def make_tree(rank: int = 0, **changed: Any) -> dict[str, Any]:
    """A state of eight chunks, of which plain values only differ by rank."""
    weights = torch.arange(200, dtype=torch.float32)
    return {"plain": rank, "a": weights[:50], "b": [weights[:192].view(12, 16).t()], **changed}


class Job:
    """Hands the state of rank `source` over; what came and what each rank logged."""

    def __init__(
        self, trees: list[dict[str, Any]], receivers: list[int], *, source: int = 0,
        on_the_way: Any = lambda *_: None,
    ) -> None:  # fmt: skip
        self.post = Post(len(trees), on_the_way)
        self.logs: list[list[str]] = [[] for _ in trees]

        def work(group: MemoryGroup) -> Any:
            rank = group.rank
            layout = None if rank in receivers else lay_out(trees[rank])
            log = self.logs[rank].append
            packed, _ = hand_over(group, source, receivers, layout, log)  # type: ignore[arg-type]
            return None if packed is None else unpack(packed)

        self.got = on_ranks(self.post, work)


@pytest.mark.parametrize("receivers", [1, 2, 3])
@pytest.mark.parametrize("senders", [1, 2, 3, 5])
@pytest.mark.parametrize("last", [False, True])
def test_everybody_gets_the_sources_state(senders: int, receivers: int, last: bool) -> None:
    ranks = senders + receivers
    trees = [make_tree(rank) for rank in range(ranks)]
    source = senders - 1 if last else 0
    job = Job(trees, list(range(senders, ranks)), source=source)
    assert job.got[:senders] == [None] * senders
    assert all(same(got, trees[source]) for got in job.got[senders:])
    assert job.logs == [[]] * ranks


def test_the_work_is_shared_whatever_the_number_of_receivers() -> None:
    """Of 8 chunks each of 4 senders sends 2, and each receiver passes on all but the last."""
    job = Job([make_tree(rank) for rank in range(7)], [4, 5, 6])
    size, head = lay_out(make_tree()).size, len(lay_out(make_tree()).head)
    assert size == 1024
    assert [job.post.sent[rank, 4] for rank in (1, 2, 3)] == [256, 256, 256]
    assert job.post.sent[0, 4] == 256 + head + 8 * 8
    assert job.post.sent[0, 5] == job.post.sent[0, 6] == head + 8 * 8
    assert [job.post.sent[4, 5], job.post.sent[5, 6]] == [size, size]


@pytest.mark.parametrize(
    "tree", [{"plain": 1}, {"none": torch.zeros(0)}, {"one": torch.tensor(7)}], ids=str
)
def test_tiny_states(tree: dict[str, Any]) -> None:
    job = Job([tree, tree, {}, {}], [2, 3])
    assert all(same(got, tree) for got in job.got[2:])


def test_differing_buffers_come_from_the_source() -> None:
    """Chunk 0 comes from rank 0, chunk 1 (bytes 128 to 256: from 32 on of `a`) from rank 1."""
    other = make_tree(1)
    other["a"] = other["a"].clone()
    other["a"][40] = -1
    job = Job([make_tree(), other, {}], [2])
    assert same(job.got[2], make_tree())
    assert job.logs[2] == ["state: 1 of 8 chunks (first: 1) not as rank 0 announced: fetched again"]


def test_a_member_with_other_tensors_sends_nothing() -> None:
    job = Job([make_tree(), make_tree(more=torch.ones(99)), {}], [2])
    assert same(job.got[2], make_tree())
    assert job.post.sent[1, 2] == 0
    assert job.logs[0] == ["state: ranks [1] have other tensors than rank 0, and send nothing"]


class Damage:
    """Flips a bit of what `source` sends to `to` as `tag`, `times` times."""

    def __init__(self, source: int, to: int, tag: int | str, times: int = 1) -> None:
        self.where, self.times = (source, to, tag), times

    def __call__(self, source: int, to: int, tag: int | str, data: torch.Tensor) -> None:
        if (source, to, tag) == self.where and self.times and data.numel():
            self.times -= 1
            data[-1] ^= 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Damage(0, 2, 0), {2: "1 of 8 chunks (first: 0) not", 3: "1 of 8 chunks"}),
        (Damage(1, 2, 7), {2: "1 of 8 chunks (first: 7) not", 3: "1 of 8 chunks"}),
        (Damage(2, 3, 4), {3: "1 of 8 chunks (first: 4) not"}),
        (Damage(0, 3, "whole"), {3: "state: the description not as rank 0"}),
    ],
    ids=["source", "helper", "passed on", "description"],
)
def test_a_bit_flipped_on_the_way_is_mended(damage: Damage, said: dict[int, str]) -> None:
    job = Job([make_tree(), make_tree(1), {}, {}], [2, 3], on_the_way=damage)
    assert damage.times == 0
    assert all(same(got, make_tree()) for got in job.got[2:])
    for rank, log in enumerate(job.logs):
        # `mend` is a round of all receivers: one that lacks nothing has nothing to say.
        assert [said[rank] in line for line in log] == ([True] if rank in said else [])


def test_a_source_that_is_not_what_it_announced_is_replaced_by_the_next() -> None:
    damage = Damage(0, 2, 2, times=9)
    job = Job([make_tree(), make_tree(1), {}], [2], on_the_way=damage)
    assert same(job.got[2], make_tree(1))
    assert [log[-1] for log in job.logs] == [
        "state: what rank 0 sends doesn't fit its own checksums",
        "state: what rank 0 sends doesn't fit its own checksums",
        "state: 1 of 8 chunks (first: 2) not as rank 1 announced: fetched again",
    ]


def test_nobody_has_an_undamaged_state() -> None:
    damage = Damage(0, 2, 0, times=9)
    job = Job([make_tree(), make_tree(more=torch.ones(9)), {}], [2], on_the_way=damage)
    assert [type(got) for got in job.got] == [StateError] * 3
    assert str(job.got[1]) == "state: none of the ranks [0] could send one undamaged"


def test_replicas_of_the_same_step_differ_in_plain_values_only() -> None:
    """So that a chunk of one is as good as that of another, whatever was drawn at random."""
    one, other = make_replica(1), make_replica(1)
    train(one, 3)
    train(other, 3)
    torch.rand(5)
    other.counters.samples = 77
    assert torch.equal(pack(one.tree()).data, pack(other.tree()).data)
    assert lay_out(one.tree()).head != lay_out(other.tree()).head


@pytest.mark.parametrize("begin", [0, 64, 192, 256])
def test_a_piece_within_a_tensor_is_no_copy(begin: int) -> None:
    tensor = torch.arange(96, dtype=torch.float32)
    layout = lay_out([torch.ones(3), tensor, torch.ones(2)])
    piece = layout.piece(begin, begin + 64)
    shared = piece.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert shared == (begin in (64, 192, 256))


def test_a_torn_state_is_no_fresh_start(tmp_path: Path) -> None:
    replica = make_replica()
    train(replica)
    with pytest.raises(StateError, match="state after step 1 is incomplete, no peer has a whole"):
        start(replica, tmp_path, 1, print, torn=True)
