"""Training state as one flat buffer: what peers send each other and checkpoints hold.

A state is a tree of dicts, lists, tuples and plain values with tensors at its leaves. Packed, it is
a small description and one uint8 tensor with every tensor's bytes at 64-byte boundaries. The
description is read with `weights_only`, so that a packed state can't run code.
"""

from __future__ import annotations

import io
import random
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_ALIGN = 64
_MARK = "__tensor__"


class StateError(RuntimeError):
    """A state that is incomplete, damaged or doesn't fit."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`head` describes, `data` is a flat uint8 tensor on the CPU, `checksum` the CRC-32 of both."""

    head: bytes
    data: torch.Tensor
    checksum: int

    @property
    def size_bytes(self) -> int:
        return len(self.head) + self.data.numel()

    def verify(self) -> None:
        """Raises StateError if the bytes are not those that were packed."""
        found = checksum(self.head, self.data)
        if found != self.checksum:
            raise StateError(
                f"state of {self.size_bytes} bytes is damaged: "
                f"CRC-32 {found:08x} instead of {self.checksum:08x}"
            )


def checksum(head: bytes, data: torch.Tensor) -> int:
    return zlib.crc32(data.numpy(), zlib.crc32(head))


def pack(tree: Any) -> Packed:
    """Copy a state into one buffer. Tensors may live on any device; they are brought to the CPU."""
    tensors: list[torch.Tensor] = []

    def strip(node: Any) -> Any:
        if isinstance(node, torch.Tensor):
            tensors.append(node.detach())
            return {_MARK: len(tensors) - 1}
        if isinstance(node, dict):
            return {key: strip(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(strip(value) for value in node)
        return node

    skeleton = strip(tree)
    specs, offset = [], 0
    for each in tensors:
        specs.append((each.dtype, tuple(each.shape), offset))
        offset += -(-each.numel() * each.element_size() // _ALIGN) * _ALIGN
    data = torch.zeros(offset, dtype=torch.uint8)
    for each, spec in zip(tensors, specs, strict=True):
        _view(data, *spec).copy_(each)
    stream = io.BytesIO()
    torch.save({"skeleton": skeleton, "specs": specs}, stream)
    head = stream.getvalue()
    return Packed(head, data, checksum(head, data))


def unpack(packed: Packed) -> Any:
    """The tree again, its tensors being views of the buffer. Raises StateError when damaged."""
    packed.verify()
    described = torch.load(io.BytesIO(packed.head), weights_only=True)
    views = [_view(packed.data, *spec) for spec in described["specs"]]

    def fill(node: Any) -> Any:
        if isinstance(node, dict):
            if len(node) == 1 and _MARK in node:
                return views[node[_MARK]]
            return {key: fill(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(fill(value) for value in node)
        return node

    return fill(described["skeleton"])


def _view(
    data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], offset: int
) -> torch.Tensor:
    size = dtype.itemsize
    for length in shape:
        size *= length
    return data[offset : offset + size].view(dtype).view(shape)


def random_state() -> dict[str, Any]:
    """States of torch's, Python's and numpy's global generators, as plain values."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), *rest],
    }


def set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"].clone())
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
