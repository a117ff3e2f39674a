"""Which sample comes when: a pure function of (seed, position), whatever the number of replicas.

Positions count samples since the job began. Position p belongs to epoch p // length, and each epoch
is a permutation of all indices, so that every index comes exactly once an epoch. A batch may cross
from one epoch into the next. The permutation is a Feistel network with cycle walking: nothing is
stored, any position is found in constant time, and its values don't depend on a library's version.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ROUNDS = 6
_MASK = (1 << 64) - 1


def _mix(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """splitmix64's finalizer (Steele, Lea, Flood: Fast splittable PRNGs, OOPSLA 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def mix(*parts: int) -> int:
    """One 64-bit number from several: the seed of anything that belongs to (seed, step, ...)."""
    value = np.zeros(1, dtype=np.uint64)
    for part in parts:
        value = _mix(value + np.uint64((part + 0x9E3779B97F4A7C15) & _MASK))
    return int(value[0])


class ElasticSampler:
    """`length` samples, batches of `global_batch`; `cursor` is the first position not yet used."""

    def __init__(
        self, length: int, global_batch: int, *, seed: int = 0, shuffle: bool = True
    ) -> None:
        if length < 1:
            raise ValueError(f"length: must be at least 1 (got {length})")
        if global_batch < 1:
            raise ValueError(f"global_batch: must be at least 1 (got {global_batch})")
        self.length, self.global_batch = length, global_batch
        self.seed, self.shuffle = seed, shuffle
        self.cursor = 0

    @property
    def epoch(self) -> int:
        return self.cursor // self.length

    def batch(self, count: int | None = None) -> list[int]:
        """Indices of the next global batch (or `count`), in order; the cursor stays."""
        return self.at(self.cursor, self.global_batch if count is None else count)

    def at(self, position: int, count: int) -> list[int]:
        """Indices at positions [position, position + count)."""
        out: list[int] = []
        while count > 0:
            epoch, offset = divmod(position, self.length)
            here = min(count, self.length - offset)
            out += self._permute(epoch, np.arange(offset, offset + here, dtype=np.uint64))
            position, count = position + here, count - here
        return out

    def advance(self, count: int | None = None) -> None:
        """The batch (or `count` samples) was committed."""
        self.cursor += self.global_batch if count is None else count

    def _permute(self, epoch: int, offsets: np.ndarray[Any, Any]) -> list[int]:
        if not self.shuffle or self.length == 1:
            return [int(each) for each in offsets]
        half = np.uint64(max(1, -(-(self.length - 1).bit_length() // 2)))
        low = np.uint64((1 << int(half)) - 1)
        keys = [np.uint64(mix(self.seed, epoch, number)) for number in range(_ROUNDS)]
        values = offsets.copy()
        todo = np.ones(len(values), dtype=bool)
        while todo.any():  # cycle walking: the network's domain is at most four times the length
            left, right = values[todo] >> half, values[todo] & low
            for key in keys:
                left, right = right, left ^ (_mix(right + key) & low)
            values[todo] = (left << half) | right
            todo = values >= np.uint64(self.length)
        return [int(each) for each in values]

    def state_dict(self) -> dict[str, Any]:
        return {
            "length": self.length, "global_batch": self.global_batch, "seed": self.seed,
            "shuffle": self.shuffle, "cursor": self.cursor,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError if the order of samples would not be the one of the saved run."""
        for name in ("length", "seed", "shuffle"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"{name}: the state was made with {state[name]!r}, this sampler has "
                    f"{getattr(self, name)!r}; samples would be repeated or left out"
                )
        self.global_batch, self.cursor = state["global_batch"], state["cursor"]


def shares(units: int, ranks: int) -> list[range]:
    """Contiguous shares of `units` over `ranks`, as even as can be: the first get one more."""
    least, more = divmod(units, ranks)
    starts = [rank * least + min(rank, more) for rank in range(ranks + 1)]
    return [range(starts[rank], starts[rank + 1]) for rank in range(ranks)]
