"""Checkpoints on disk: written whole or not at all, verified when read.

One file: a line that names the format, a JSON line with sizes, checksum and step, then the packed
state as peers send it. It is written under another name, synced, and renamed into place.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

import torch

from trainer_runtime.state import Packed, StateError

_FORMAT = b"concertina training state 2\n"
# Formats that are read, and the method of their checksum.
_READ = {_FORMAT: "xxh3", b"concertina training state 1\n": "crc32"}
_NAME = re.compile(r"step-(\d{12})\.state")


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in `folder`, the newest first. Empty if there is no such folder."""
    if not folder.is_dir():
        return []
    found = [_NAME.fullmatch(each.name) for each in folder.iterdir()]
    return sorted((int(match[1]) for match in found if match), reverse=True)


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:012d}.state"


def write(folder: Path, step: int, packed: Packed, *, keep: int = 2) -> Path:
    """Publish a checkpoint of `step` and remove all but the newest `keep`. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "step": step, "head": len(packed.head), "data": packed.data.numel(),
        "checksum": packed.checksum,
    }  # fmt: skip
    path = path_of(folder, step)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(_FORMAT + json.dumps(about).encode() + b"\n" + packed.head)
            file.write(memoryview(packed.data.numpy()))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    for old in steps(folder)[keep:]:
        with contextlib.suppress(OSError):
            path_of(folder, old).unlink()
    return path


def read(path: Path) -> Packed:
    """Raises StateError, naming the file, if it isn't a whole checkpoint of this format."""
    try:
        with path.open("rb") as file:
            kind = _READ.get(file.readline(64))
            if kind is None:
                raise StateError(f"{path}: not a checkpoint of this format")
            about = json.loads(file.readline())
            head = file.read(about["head"])
            body = bytearray(file.read())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path}: can't be read: {error}") from error
    if len(head) != about["head"] or len(body) != about["data"]:
        raise StateError(
            f"{path}: incomplete: {len(head) + len(body)} bytes instead of "
            f"{about['head'] + about['data']}"
        )
    data = torch.frombuffer(body, dtype=torch.uint8) if body else torch.zeros(0, dtype=torch.uint8)
    packed = Packed(head, data, about["checksum"], kind)
    try:
        packed.verify()
    except StateError as error:
        raise StateError(f"{path}: {error}") from error
    return packed


def newest(folder: Path) -> tuple[int, Packed, list[str]] | None:
    """(step, state, what was wrong with newer ones) of the newest whole checkpoint, None if there
    is none at all. Raises StateError if there are some and none is whole: never start anew then."""
    problems: list[str] = []
    for step in steps(folder):
        try:
            return step, read(path_of(folder, step)), problems
        except StateError as error:
            problems.append(str(error))
    if problems:
        raise StateError("no checkpoint is whole: " + "; ".join(problems))
    return None
