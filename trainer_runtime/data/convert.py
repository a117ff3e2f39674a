"""concertina-data: text into token shards, and what shards hold.

    concertina-data convert SRC DST [--tokenizer FOLDER] [--field text]
    concertina-data verify FOLDER
    concertina-data info FOLDER

DST appears whole at the end, or not at all; after an interruption the same command starts anew.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trainer_runtime.data.folder import FolderWriter, Manifest, read_manifest, verify
from trainer_runtime.data.format import ShardError
from trainer_runtime.data.sources import Documents, Piece
from trainer_runtime.data.tokenizers import Tokenizer, load

_BATCH_BYTES, _BATCH_PIECES = 1 << 20, 512
_SAY_EVERY_S = 1.0


def convert(
    documents: Documents,
    folder: Path,
    tokenizer: Tokenizer,
    *,
    shard_bytes: int = 256 << 20,
    said: Callable[[str], None] = lambda text: None,
) -> Manifest:
    """Write the documents as shards into `folder`, which must not exist. `said` gets a line about
    the progress every second. Raises SourceError, FileExistsError, BlockingIOError, ValueError."""
    began = last = time.monotonic()
    with FolderWriter(
        folder, tokenizer=tokenizer.name, vocabulary=tokenizer.vocabulary, shard_bytes=shard_bytes
    ) as writer:
        held: list[Piece] = []
        size = 0
        for piece in documents:
            held.append(piece)
            size += len(piece.text)
            if size < _BATCH_BYTES and len(held) < _BATCH_PIECES:
                continue
            _write(writer, tokenizer, held)
            held, size = [], 0
            if time.monotonic() - last >= _SAY_EVERY_S:
                last = time.monotonic()
                said(_progress(documents, writer.tokens, last - began))
        _write(writer, tokenizer, held)
    said(_progress(documents, writer.tokens, time.monotonic() - began))
    if documents.skipped:
        said(f"{documents.skipped} documents without text were left out")
    return read_manifest(folder)


def _write(writer: FolderWriter, tokenizer: Tokenizer, pieces: list[Piece]) -> None:
    if not pieces:
        return
    end = np.array([] if tokenizer.end is None else [tokenizer.end], dtype=np.int64)
    encoded = tokenizer.encode([piece.text for piece in pieces])
    for piece, tokens in zip(pieces, encoded, strict=True):
        writer.add(np.concatenate([tokens, end]) if piece.ends else tokens, ends=piece.ends)


def _progress(documents: Documents, tokens: int, seconds: float) -> str:
    done, total = documents.bytes_done, max(1, documents.bytes)
    return (
        f"{100 * done / total:.0f} % of {total / 1e6:.1f} MB, {tokens} tokens, "
        f"{done / 1e6 / max(seconds, 1e-9):.1f} MB/s"
    )


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="concertina-data", description="Token shards.")
    commands = parser.add_subparsers(dest="command", required=True)
    into = commands.add_parser("convert", help="text, JSONL, Parquet or a HF dataset into shards")
    into.add_argument("source", type=Path)
    into.add_argument("folder", type=Path, help="must not exist")
    into.add_argument("--tokenizer", default="bytes", help="bytes, or a tokenizer's folder")
    into.add_argument("--field", default="text", help="column of JSONL, Parquet and Arrow")
    into.add_argument("--by-line", action="store_true", help="a text file's lines are documents")
    into.add_argument("--end", help="token number after each document, or none")
    into.add_argument("--shard-mib", type=float, default=256.0)
    for name, what in (("verify", "check every byte"), ("info", "what a folder holds")):
        commands.add_parser(name, help=what).add_argument("folder", type=Path)
    return parser.parse_args(argv)


def _convert(args: argparse.Namespace) -> int:
    tokenizer = load(args.tokenizer)
    if args.end is not None:
        tokenizer.end = None if args.end == "none" else int(args.end)
    convert(
        Documents(args.source, field=args.field, by_line=args.by_line), args.folder, tokenizer,
        shard_bytes=int(args.shard_mib * (1 << 20)),
        said=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    return _info(args)


def _verify(args: argparse.Namespace) -> int:
    found = verify(args.folder)
    for error in found:
        print(error, file=sys.stderr)
    print(f"{args.folder}: {f'{len(found)} errors' if found else 'whole'}")
    return 1 if found else 0


def _info(args: argparse.Namespace) -> int:
    about = read_manifest(args.folder)
    print(
        f"{args.folder}: {about.tokens} tokens ({about.dtype}, {about.tokenizer}, vocabulary "
        f"{about.vocabulary}), {about.documents} documents, {len(about.shards)} shards, "
        f"{about.bytes / 1e6:.1f} MB, checksum {about.checksum}"
    )
    return 0


def main(argv: list[str] | None = None) -> int:
    """Exit code 0; 1 if something is wrong with the data; 2 for wrong arguments."""
    args = parse(argv)
    # SIGTERM as an exception, so that what is half written is removed.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return {"convert": _convert, "verify": _verify, "info": _info}[args.command](args)
    except (ShardError, ValueError, OSError) as error:
        print(f"concertina-data: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
