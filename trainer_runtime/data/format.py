"""One token shard: its file format, its writer and its memory-mapped reader.

All numbers are little-endian:

    offset  bytes
    0       8     magic "CNCTOKEN"
    8       4     version, 1
    12      4     bytes of a token: 2 (uint16) or 4 (uint32)
    16      8     number of tokens
    24      8     number of documents
    32      8     bytes of a block, 65,536
    40      8     XXH3-64 of the checksum table
    48      8     0
    56      8     XXH3-64 of bytes 0 to 55
    64            tokens, one document after the other, then zeros up to a multiple of 8
    ...           uint64 x (documents + 1): the token a document starts at; the last one is the end
    ...           the checksum table: uint64 XXH3-64 of each block of all between header and table

The header is written last, so a file that was left unfinished has none. The header's own checksum
covers the table's, which covers the blocks': it identifies the shard's content. A block is checked
when it is touched for the first time, so that no start has to read a whole shard.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash

MAGIC = b"CNCTOKEN"
VERSION = 1
BLOCK = 1 << 16
HEADER = struct.Struct("<8sIIQQQQQQ")
_SUMMED = HEADER.size - 8
_REMEDY = "convert the source again, or copy the shard again from where it is whole"

Tokens = np.ndarray[Any, np.dtype[Any]]


class ShardError(ValueError):
    """A shard (or a folder's manifest) that must not be trained on; says where and what to do."""

    def __init__(self, path: Path, offset: int, what: str) -> None:
        super().__init__(f"{path}: byte {offset}: {what}; {_REMEDY}")
        self.path, self.offset = path, offset


@dataclass(frozen=True, slots=True)
class Header:
    """What the first 64 bytes say. `checksum` identifies the whole content."""

    width: int
    tokens: int
    documents: int
    block: int
    table_checksum: int
    checksum: int = 0

    @property
    def documents_at(self) -> int:
        return HEADER.size + -(-self.tokens * self.width // 8) * 8

    @property
    def table_at(self) -> int:
        return self.documents_at + 8 * (self.documents + 1)

    @property
    def blocks(self) -> int:
        return -(-(self.table_at - HEADER.size) // self.block)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.table_at + 8 * self.blocks

    def pack(self) -> bytes:
        raw = HEADER.pack(
            MAGIC, VERSION, self.width, self.tokens, self.documents, self.block,
            self.table_checksum, 0, 0,
        )[:_SUMMED]  # fmt: skip
        return raw + xxhash.xxh3_64_intdigest(raw).to_bytes(8, "little")


def read_header(path: Path) -> Header:
    """Checks header and size. Raises ShardError, and OSError if the file can't be read."""
    with path.open("rb", buffering=0) as file:
        raw = file.read(HEADER.size)
        size = os.fstat(file.fileno()).st_size
    if len(raw) < HEADER.size:
        raise ShardError(path, size, f"truncated: a header has {HEADER.size} bytes")
    magic, version, width, tokens, documents, block, table, _, checksum = HEADER.unpack(raw)
    if magic != MAGIC:
        raise ShardError(path, 0, "not a token shard, or one that was never finished")
    if xxhash.xxh3_64_intdigest(raw[:_SUMMED]) != checksum:
        raise ShardError(path, _SUMMED, "the header's checksum differs")
    if version != VERSION:
        raise ShardError(path, 8, f"version {version}; this release reads version {VERSION}")
    if width not in (2, 4) or block < 1:
        raise ShardError(path, 12, f"tokens of {width} bytes in blocks of {block}")
    header = Header(width, tokens, documents, block, table, checksum)
    if size < header.size:
        raise ShardError(path, size, f"truncated: {size} of {header.size} bytes")
    if size > header.size:
        raise ShardError(path, header.size, f"{size - header.size} bytes too many")
    return header


class ShardWriter:
    """Writes one shard in a stream; memory is one block and 8 bytes a document."""

    def __init__(self, path: Path, width: int) -> None:
        if width not in (2, 4):
            raise ValueError(f"width: a token has 2 or 4 bytes (got {width})")
        self.path, self.width, self.tokens = path, width, 0
        self._starts, self._table, self._rest = array("Q", [0]), array("Q"), bytearray()
        self._file: BinaryIO = path.open("xb", buffering=0)
        self._file.write(bytes(HEADER.size))

    @property
    def documents(self) -> int:
        return len(self._starts) - 1

    def add(self, tokens: Tokens, *, ends: bool = True) -> None:
        """Append tokens [n] to the document at hand; `ends`: it is complete. Raises ValueError for
        a token that doesn't fit, and OSError."""
        if len(tokens):
            least, most = int(tokens.min()), int(tokens.max())
            if least < 0 or most >= 1 << 8 * self.width:
                raise ValueError(
                    f"token {least if least < 0 else most} doesn't fit into {self.width} bytes; "
                    "choose the other dtype"
                )
            self._put(tokens.astype(f"<u{self.width}").tobytes())
            self.tokens += len(tokens)
        if ends:
            self._starts.append(self.tokens)

    def close(self) -> Header:
        """Write the end and the header, synced to disk."""
        with self._file:
            if self._starts[-1] != self.tokens:
                self._starts.append(self.tokens)
            self._put(bytes(-(self.tokens * self.width) % 8))
            self._put(np.array(self._starts, dtype="<u8").tobytes())
            self._flush(len(self._rest))
            table = np.array(self._table, dtype="<u8").tobytes()
            _write(self._file, table)
            header = Header(
                self.width, self.tokens, self.documents, BLOCK, xxhash.xxh3_64_intdigest(table)
            )
            self._file.seek(0)
            _write(self._file, header.pack())
            os.fsync(self._file.fileno())
        return read_header(self.path)

    def abandon(self) -> None:
        self._file.close()

    def _put(self, data: bytes) -> None:
        self._rest += data
        if len(self._rest) >= BLOCK:
            self._flush(len(self._rest) // BLOCK * BLOCK)

    def _flush(self, count: int) -> None:
        data = bytes(self._rest[:count])
        del self._rest[:count]
        for start in range(0, count, BLOCK):
            self._table.append(xxhash.xxh3_64_intdigest(data[start : start + BLOCK]))
        _write(self._file, data)


def _write(file: BinaryIO, data: bytes) -> None:
    """All of it: an unbuffered write may take less, at the end of a disk for instance."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


class Shard:
    """A shard mapped into memory. Raises ShardError. Thread-safe: a block may be checked twice."""

    def __init__(self, path: Path, header: Header | None = None, *, check: bool = True) -> None:
        self.path, self.header = path, header or read_header(path)
        self._fd = os.open(path, os.O_RDONLY)
        try:
            self._same_size()
            self._map = mmap.mmap(self._fd, self.header.size, prot=mmap.PROT_READ)
        except BaseException:
            os.close(self._fd)
            raise
        head = self.header
        self.tokens: Tokens = np.frombuffer(
            self._map, dtype=f"<u{head.width}", count=head.tokens, offset=HEADER.size
        )
        #: [documents + 1] the token each document starts at
        self.documents: Tokens = np.frombuffer(
            self._map, dtype="<u8", count=head.documents + 1, offset=head.documents_at
        )
        self._table = np.frombuffer(self._map, dtype="<u8", count=head.blocks, offset=head.table_at)
        if xxhash.xxh3_64_intdigest(self._table.tobytes()) != head.table_checksum:
            self.close()
            raise ShardError(path, head.table_at, "the checksum table's checksum differs")
        self._checked = np.zeros(head.blocks, dtype=bool) if check else None

    def close(self) -> None:
        """Arrays that were handed out keep the mapping alive."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self.close()

    def read(self, start: int, stop: int) -> Tokens:
        """Tokens [stop - start], a view of the file, checked."""
        if self._checked is not None:
            width = self.header.width
            first, last = start * width // BLOCK, (stop * width - 1) // BLOCK + 1
            if not self._checked[first:last].all():
                self.verify(first, last)
        return self.tokens[start:stop]

    def verify(self, first: int = 0, last: int | None = None) -> None:
        """Check blocks [first, last), all by default."""
        # A file that was cut after it was mapped would end the process with SIGBUS.
        self._same_size()
        head = self.header
        with memoryview(self._map) as view:
            for number in range(first, head.blocks if last is None else last):
                if self._checked is not None and self._checked[number]:
                    continue
                start = HEADER.size + number * head.block
                stop = min(start + head.block, head.table_at)
                if xxhash.xxh3_64_intdigest(view[start:stop]) != self._table[number]:
                    raise ShardError(
                        self.path, start, f"corrupt: the checksum of {stop - start} bytes differs"
                    )
                if self._checked is not None:
                    self._checked[number] = True

    def _same_size(self) -> None:
        size = os.fstat(self._fd).st_size
        if size != self.header.size:
            raise ShardError(self.path, size, f"{size} bytes instead of {self.header.size}")
