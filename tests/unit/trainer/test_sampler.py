"""The order of samples: exact once an epoch, the same for every number of replicas."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_runtime.sampler import ElasticSampler, mix, shares


@settings(deadline=None, max_examples=50)
@given(
    length=st.integers(1, 300), batch=st.integers(1, 50), seed=st.integers(0, 2**40),
    shuffle=st.booleans(),
)  # fmt: skip
def test_every_index_once_an_epoch(length: int, batch: int, seed: int, shuffle: bool) -> None:
    sampler = ElasticSampler(length, batch, seed=seed, shuffle=shuffle)
    used: list[int] = []
    while len(used) < 2 * length:
        used += sampler.batch()
        sampler.advance()
    assert sampler.cursor == len(used)
    for start in (0, length):
        assert sorted(used[start : start + length]) == list(range(length))


def test_order_is_pinned() -> None:
    """A change here changes what a resumed run reads next."""
    assert ElasticSampler(10, 4, seed=5).at(0, 20) == WANT


WANT = [8, 2, 0, 6, 4, 5, 7, 1, 9, 3, 6, 9, 8, 0, 7, 4, 3, 5, 1, 2]


def test_epochs_and_seeds_differ() -> None:
    one = ElasticSampler(1000, 1, seed=1)
    assert one.at(0, 1000) != one.at(1000, 1000)
    assert one.at(0, 1000) != ElasticSampler(1000, 1, seed=2).at(0, 1000)


def test_batch_crosses_the_end_of_an_epoch() -> None:
    sampler = ElasticSampler(5, 4)
    sampler.advance()
    assert sampler.epoch == 0
    assert sampler.batch() == sampler.at(4, 1) + sampler.at(5, 3)
    sampler.advance()
    assert sampler.epoch == 1


def test_batch_does_not_advance() -> None:
    sampler = ElasticSampler(50, 4)
    assert sampler.batch() == sampler.batch()


@pytest.mark.parametrize(
    ("length", "batch", "want"),
    [(0, 1, "length: must be at least 1"), (1, 0, "global_batch: must be at least 1")],
)
def test_refused(length: int, batch: int, want: str) -> None:
    with pytest.raises(ValueError, match=want):
        ElasticSampler(length, batch)


@pytest.mark.parametrize("change", [{"length": 9}, {"seed": 1}, {"shuffle": False}])
def test_state_of_another_order_is_refused(change: dict[str, int]) -> None:
    sampler = ElasticSampler(10, 4)
    with pytest.raises(ValueError, match=f"{next(iter(change))}: the state was made with"):
        sampler.load_state_dict(ElasticSampler(10, 4).state_dict() | change)
    assert sampler.cursor == 0


def test_state_comes_back() -> None:
    sampler, other = ElasticSampler(10, 4), ElasticSampler(10, 4)
    sampler.advance()
    other.load_state_dict(sampler.state_dict())
    assert other.batch() == sampler.batch()


@settings(deadline=None)
@given(units=st.integers(0, 200), ranks=st.integers(1, 40))
def test_shares_are_contiguous_and_even(units: int, ranks: int) -> None:
    got = shares(units, ranks)
    assert [i for share in got for i in share] == list(range(units))
    assert max(map(len, got)) - min(map(len, got)) <= 1


def test_mix_depends_on_every_part() -> None:
    seen = {mix(*parts) for parts in [(0,), (0, 0), (0, 1), (1, 0), (1, 0, 0), (2**63, 5)]}
    assert len(seen) == 6
    assert all(0 <= value < 2**64 for value in seen)
