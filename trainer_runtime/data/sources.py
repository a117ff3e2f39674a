"""Documents out of text, JSONL, Parquet and HF datasets on disk, as a stream of bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_PIECE = 8 << 20
_ROWS = 256
_SUFFIXES = {
    ".txt": "text", ".text": "text", ".md": "text", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".arrow": "arrow",
}  # fmt: skip


class SourceError(ValueError):
    """A source that can't be read; says the file, the line or row, and what to do."""


class Piece(NamedTuple):
    """UTF-8 text of a document, or of a part of it; `ends`: the document ends here."""

    text: bytes
    ends: bool


class Documents:
    """Iterates over the documents below `source` in the order of the files' names.

    `field` is the column of JSONL, Parquet and Arrow; `by_line` makes each line of a text file a
    document instead of the file. A text document of more than 8 MiB comes in pieces that end with
    a line. A document that is null is left out and counted in `skipped`. Raises SourceError.
    """

    def __init__(self, source: Path, *, field: str = "text", by_line: bool = False) -> None:
        self.field, self.by_line = field, by_line
        self.files = find(source)
        self.bytes = sum(path.stat().st_size for path in self.files)
        self.bytes_done = self.skipped = 0

    def __iter__(self) -> Iterator[Piece]:
        readers = {
            "text": self._text, "jsonl": self._jsonl, "parquet": self._parquet, "arrow": self._arrow
        }  # fmt: skip
        for path in self.files:
            before = self.bytes_done
            yield from readers[_SUFFIXES[path.suffix]](path)
            self.bytes_done = before + path.stat().st_size

    def _text(self, path: Path) -> Iterator[Piece]:
        with path.open("rb") as file:
            if self.by_line:
                for line in file:
                    self.bytes_done += len(line)
                    yield Piece(line.rstrip(b"\r\n"), True)
                return
            piece = file.read(_PIECE)
            while True:
                piece += file.readline() if len(piece) == _PIECE else b""
                self.bytes_done += len(piece)
                following = file.read(_PIECE)
                yield Piece(piece, not following)
                if not following:
                    return
                piece = following

    def _jsonl(self, path: Path) -> Iterator[Piece]:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                self.bytes_done += len(line)
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise SourceError(
                        f"{path}: line {number}: not JSON: {error}; mend or remove the line"
                    ) from error
                if not isinstance(row, dict):
                    raise SourceError(f"{path}: line {number}: must be an object (got {row!r:.40})")
                if self.field not in row:
                    raise SourceError(self._no_field(f"{path}: line {number}", row))
                yield from self._one(row[self.field], f"{path}: line {number}")

    def _parquet(self, path: Path) -> Iterator[Piece]:
        _pyarrow()
        import pyarrow.parquet as pq

        with _reading(path), pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if self.field not in names:
                raise SourceError(self._no_field(str(path), names))
            batches = file.iter_batches(batch_size=_ROWS, columns=[self.field])
            yield from self._columns(path, (each.column(0) for each in batches))

    def _arrow(self, path: Path) -> Iterator[Piece]:
        """HF writes the stream format; the file format is read too."""
        pa = _pyarrow()
        with _reading(path), pa.memory_map(str(path)) as file:
            try:
                opened = pa.ipc.open_stream(file)
                batches: Iterator[Any] = iter(opened)
            except pa.ArrowInvalid:
                opened = pa.ipc.open_file(file)
                batches = (opened.get_batch(n) for n in range(opened.num_record_batches))
            if self.field not in opened.schema.names:
                raise SourceError(self._no_field(str(path), opened.schema.names))
            yield from self._columns(path, (each.column(self.field) for each in batches))

    def _columns(self, path: Path, columns: Iterator[Any]) -> Iterator[Piece]:
        row = 0
        for column in columns:
            for start in range(0, len(column), _ROWS):
                for value in column.slice(start, _ROWS).to_pylist():
                    yield from self._one(value, f"{path}: row {row}")
                    row += 1

    def _one(self, value: object, where: str) -> Iterator[Piece]:
        if value is None:
            self.skipped += 1
            return
        if not isinstance(value, str):
            raise SourceError(
                f"{where}: field {self.field!r} must be text (got {value!r:.40}); choose another "
                "with --field"
            )
        try:
            yield Piece(value.encode(), True)
        except UnicodeEncodeError as error:
            raise SourceError(f"{where}: field {self.field!r} isn't text: {error}") from error

    def _no_field(self, where: str, names: Any) -> str:
        return (
            f"{where}: no field {self.field!r} (there are: {', '.join(names)}); choose one with "
            "--field"
        )


class _reading:
    """What pyarrow says of a damaged file, with the file's name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and type(error).__name__.startswith("Arrow"):
            raise SourceError(f"{self.path}: can't be read: {error}") from error


def find(source: Path) -> list[Path]:
    """The files to read: `source` itself, a HF dataset's, or all below a folder. SourceError if
    there are none."""
    if source.is_file():
        if source.suffix not in _SUFFIXES:
            raise SourceError(f"{source}: must end in one of {', '.join(_SUFFIXES)}")
        return [source]
    if not source.is_dir():
        raise SourceError(f"{source}: no such file or folder")
    if (splits := source / "dataset_dict.json").is_file():
        names = json.loads(splits.read_bytes())["splits"]
        raise SourceError(
            f"{source}: holds the splits {', '.join(names)}; convert one: {source / names[0]}"
        )
    if (state := source / "state.json").is_file():
        about = json.loads(state.read_bytes())
        if about.get("_indices_data_files"):
            raise SourceError(
                f"{source}: a selection of a dataset; call flatten_indices() and save it again"
            )
        return [source / each["filename"] for each in about["_data_files"]]
    found = sorted(
        path
        for path in source.rglob("*")
        if path.suffix in _SUFFIXES and path.is_file() and not path.name.startswith(".")
    )
    if not found:
        raise SourceError(f"{source}: no files that end in {', '.join(_SUFFIXES)}")
    return found


def _pyarrow() -> Any:
    try:
        import pyarrow.ipc
    except ImportError as error:
        raise SourceError(
            "Parquet and Arrow need pyarrow: pip install 'concertina-trainer[data]'"
        ) from error
    return pyarrow
