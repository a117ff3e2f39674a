"""Training state as one flat buffer: what peers send each other and checkpoints hold.

A state is a tree of dicts, lists, tuples and plain values with tensors at its leaves. Packed, it is
a small description and one uint8 tensor with every tensor's bytes at 64-byte boundaries. The
description is read with `weights_only`, so that a packed state can't run code.
"""

from __future__ import annotations

import bisect
import functools
import io
import random
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xxhash

_ALIGN = 64
_MARK = "__tensor__"


class StateError(RuntimeError):
    """A state that is incomplete, damaged or doesn't fit."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`head` describes, `data` is a flat uint8 tensor on the CPU, `checksum` that of both by the
    method `kind`; None for bytes that were verified while they came in (transfer.py)."""

    head: bytes
    data: torch.Tensor
    checksum: int | None
    kind: str = "xxh3"

    @property
    def size_bytes(self) -> int:
        return len(self.head) + self.data.numel()

    def verify(self) -> None:
        """Raises StateError if the bytes are not those that were packed."""
        if self.checksum is None:
            return
        found = _CHECKSUMS[self.kind](self.head, self.data)
        if found != self.checksum:
            raise StateError(
                f"state of {self.size_bytes} bytes is damaged: "
                f"{self.kind} {found:x} instead of {self.checksum:x}"
            )


def checksum(head: bytes, data: torch.Tensor) -> int:
    """xxh3 of 64 bits (tests/benchmarks/trainer_transfer.py tells its speed beside a CRC-32's)."""
    digest = xxhash.xxh3_64(head)
    digest.update(data.numpy())
    return digest.intdigest()


def _crc32(head: bytes, data: torch.Tensor) -> int:
    return zlib.crc32(data.numpy(), zlib.crc32(head))


# Checkpoints of the first format carry a CRC-32.
_CHECKSUMS = {"xxh3": checksum, "crc32": _crc32}


@dataclass(frozen=True)
class Layout:
    """Where a state's tensors lie in its packed form, without a copy of them. `size` in bytes."""

    skeleton: Any
    tensors: tuple[torch.Tensor, ...]
    starts: tuple[int, ...]
    size: int

    @property
    def specs(self) -> list[tuple[torch.dtype, tuple[int, ...], int]]:
        return [
            (each.dtype, tuple(each.shape), start)
            for each, start in zip(self.tensors, self.starts, strict=True)
        ]

    @functools.cached_property
    def head(self) -> bytes:
        """The description, with every plain value of the state."""
        stream = io.BytesIO()
        torch.save({"skeleton": self.skeleton, "specs": self.specs}, stream)
        return stream.getvalue()

    @property
    def shape_digest(self) -> int:
        """64 bits; the same for two states whose tensors lie at the same places."""
        return xxhash.xxh3_64_intdigest(repr((self.specs, self.size)).encode())

    def piece(self, begin: int, end: int) -> torch.Tensor:
        """The packed bytes from `begin` to `end`, flat uint8 on the CPU: a view where they lie
        within one tensor, else a copy."""
        at = max(0, bisect.bisect_right(self.starts, begin) - 1)
        if self.tensors and self.tensors[at].is_contiguous() and self.tensors[at].is_cpu:
            low = begin - self.starts[at]
            flat = as_bytes(self.tensors[at])
            if low >= 0 and end - self.starts[at] <= flat.numel():
                return flat[low : end - self.starts[at]]
        out = torch.empty(end - begin, dtype=torch.uint8)
        self.fill(out, begin)
        return out

    def fill(self, out: torch.Tensor, begin: int) -> None:
        """Copy the packed bytes from `begin` on into `out` (flat uint8, on the CPU)."""
        end = begin + out.numel()
        first = max(0, bisect.bisect_right(self.starts, begin) - 1)
        at = begin  # up to here `out` is written
        for tensor, start in zip(self.tensors[first:], self.starts[first:], strict=True):
            if start >= end:
                break
            stop = start + tensor.numel() * tensor.element_size()
            low, high = max(start, begin), min(stop, end)
            if low < high:
                out[at - begin : low - begin].zero_()  # between two tensors
                out[low - begin : high - begin].copy_(as_bytes(tensor)[low - start : high - start])
                at = high
        out[at - begin :].zero_()


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, flat: a view where it is contiguous, else of a copy."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def lay_out(tree: Any) -> Layout:
    """Describe a state. Its tensors are read by `fill`: not to be changed until then."""
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

    skeleton, starts, offset = strip(tree), [], 0
    for each in tensors:
        starts.append(offset)
        offset += -(-each.numel() * each.element_size() // _ALIGN) * _ALIGN
    return Layout(skeleton, tuple(tensors), tuple(starts), offset)


def pack(tree: Any) -> Packed:
    """Copy a state into one buffer. Tensors may live on any device; they are brought to the CPU."""
    layout = lay_out(tree)
    data = torch.empty(layout.size, dtype=torch.uint8)
    layout.fill(data, 0)
    return Packed(layout.head, data, checksum(layout.head, data))


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
        "torch": bytes(torch.get_rng_state().numpy()),
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), *rest],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Also of states of the time when they held tensors."""
    own = state["torch"]
    torch.set_rng_state(
        own.clone()
        if isinstance(own, torch.Tensor)
        else torch.frombuffer(bytearray(own), dtype=torch.uint8)
    )
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.asarray(keys, dtype=np.uint32), *rest))
