"""A state's packed bytes, read in pieces; checkpoints of the first format."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
import torch

from trainer_runtime import checkpoint
from trainer_runtime.state import StateError, lay_out, pack, unpack

TREE = {
    "odd": torch.arange(7, dtype=torch.uint8),
    "none": torch.zeros(0),
    "scalar": torch.tensor(3.5),
    "strided": torch.arange(40.0).view(5, 8).t(),
    "half": torch.full((33,), 1.5, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("piece", [1, 7, 64, 100, 1000])
def test_pieces_are_the_whole(piece: int) -> None:
    layout, packed = lay_out(TREE), pack(TREE)
    found = torch.full((layout.size,), 255, dtype=torch.uint8)
    for begin in range(0, layout.size, piece):
        layout.fill(found[begin : begin + piece], begin)
    assert layout.head == packed.head
    assert torch.equal(found, packed.data)


@pytest.mark.parametrize("flipped", [False, True])
def test_checkpoint_of_the_first_format_is_read(tmp_path: Path, flipped: bool) -> None:
    packed = pack({"t": torch.arange(5)})
    body = packed.data.numpy().tobytes()
    about = {
        "step": 1, "head": len(packed.head), "data": len(body),
        "checksum": zlib.crc32(body, zlib.crc32(packed.head)) ^ flipped,
    }  # fmt: skip
    path = checkpoint.path_of(tmp_path, 1)
    line = json.dumps(about).encode() + b"\n"
    path.write_bytes(b"concertina training state 1\n" + line + packed.head + body)
    if flipped:
        with pytest.raises(StateError, match="is damaged: crc32"):
            checkpoint.read(path)
    else:
        assert torch.equal(unpack(checkpoint.read(path))["t"], torch.arange(5))
