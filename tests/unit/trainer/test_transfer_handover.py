"""A state on its way from one replica to another."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch

from trainer_runtime.rendezvous import receive, send
from trainer_runtime.state import Packed, StateError, pack, unpack


class Wire:
    """A group whose rank 0 sends to rank 1, in memory."""

    def __init__(self) -> None:
        self.sent: deque[torch.Tensor] = deque()

    def send(self, data: torch.Tensor, to: int) -> None:
        self.sent.append(data.clone())

    def receive(self, data: torch.Tensor, source: int) -> None:
        data.copy_(self.sent.popleft())


def hand_over(packed: Packed) -> Packed:
    wire: Any = Wire()
    assert send(wire, packed, 1) == packed.size_bytes
    return receive(wire, 0)


def test_checksums_beyond_63_bits_arrive() -> None:
    packed = [pack({"t": torch.tensor(number)}) for number in range(64)]
    assert any((each.checksum or 0) >= 2**63 for each in packed)
    found = [unpack(hand_over(each))["t"].item() for each in packed]
    assert found == list(range(64))


def test_a_bit_flipped_on_the_way_is_found() -> None:
    packed = pack({"t": torch.arange(9)})
    data = packed.data.clone()
    data[9] ^= 1
    with pytest.raises(StateError, match="is damaged: xxh3"):
        unpack(hand_over(Packed(packed.head, data, packed.checksum)))
