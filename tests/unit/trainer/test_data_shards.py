"""Token shards: what goes in comes out, and damage is named with its file and byte."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_runtime.data import convert, demo
from trainer_runtime.data.cache import NodeCache
from trainer_runtime.data.folder import FolderWriter, verify
from trainer_runtime.data.format import BLOCK, HEADER, ShardError
from trainer_runtime.data.shards import TokenShards
from trainer_runtime.examples import corpus


def write(folder: Path, documents: list[list[int]], shard_bytes: int = 1 << 20) -> Path:
    with FolderWriter(folder, tokenizer="t", vocabulary=70000, shard_bytes=shard_bytes) as writer:
        for document in documents:
            writer.add(np.array(document, dtype=np.int64))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards of 40,000 tokens, so of several blocks."""
    return write(tmp_path / "data", [list(range(40000))] * 2, shard_bytes=160000)


@settings(deadline=None, max_examples=25)
@given(
    documents=st.lists(st.lists(st.integers(0, 69999), max_size=9), min_size=1, max_size=9),
    length=st.integers(1, 5), shard=st.integers(1, 60),
)  # fmt: skip
def test_samples_are_windows_over_all_documents(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], length: int, shard: int
) -> None:
    every = [token for document in documents for token in document]
    folder = write(tmp_path_factory.mktemp("data") / "x", documents, shard)
    if len(every) <= length:
        with pytest.raises(ValueError, match="too few"):
            TokenShards(folder, length)
        return
    shards = TokenShards(folder, length)
    assert len(shards) == (len(every) - 1) // length
    got = shards.batch(range(len(shards)))
    assert got.dtype == np.int64
    want = [every[i * length : i * length + length + 1] for i in range(len(shards))]
    assert got.tolist() == want
    assert verify(folder) == []


@pytest.mark.parametrize("offset", [0, 9, 60, HEADER.size + 5, HEADER.size + BLOCK + 5, -3])
def test_a_flipped_byte_is_found_and_located(folder: Path, offset: int) -> None:
    path = folder / "00001.tokens"
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    at = offset % len(raw)
    raw[at] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ShardError) as caught:
        TokenShards(folder, 100).batch(range(799))
    assert caught.value.path == path
    assert caught.value.offset <= at or at < HEADER.size
    assert [each.path for each in verify(folder)] == [path]


def test_only_the_corrupt_block_is_refused(folder: Path) -> None:
    path = folder / "00000.tokens"
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    raw[HEADER.size + BLOCK] ^= 1
    path.write_bytes(raw)
    shards = TokenShards(folder, 100)
    shards.batch([0])
    with pytest.raises(ShardError, match=f"00000.tokens: byte {HEADER.size + BLOCK}: corrupt"):
        shards.batch([BLOCK // 400 + 1])
    with pytest.raises(ShardError, match="corrupt"):
        TokenShards(folder, 100, verify="open")


@pytest.mark.parametrize("size", [0, 10, 64, 70000, 160000])
def test_truncated_is_refused_at_open(folder: Path, size: int) -> None:
    path = folder / "00001.tokens"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ShardError, match=f"00001.tokens: byte {size}: truncated"):
        TokenShards(folder, 100)


def test_missing_and_swapped_shards_are_refused(folder: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", [[1, 2, 3]])
    (folder / "00001.tokens").unlink()
    with pytest.raises(ShardError, match="no such file"):
        TokenShards(folder, 100)
    (folder / "00001.tokens").write_bytes((other / "00000.tokens").read_bytes())
    with pytest.raises(ShardError, match="not the shard that the manifest names"):
        TokenShards(folder, 100)


def test_nothing_is_published_after_an_exception(tmp_path: Path) -> None:
    def interrupted() -> None:
        with FolderWriter(tmp_path / "x", tokenizer="t", vocabulary=9) as to:
            to.add(np.array([1]))
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="isn't below"):
        write(tmp_path / "y", [[70000]])
    (tmp_path / ".z.partial").mkdir()  # as a killed writer leaves it
    (tmp_path / ".z.partial" / "00000.tokens").write_bytes(b"half")
    write(tmp_path / "z", [[1, 2]])
    with pytest.raises(FileExistsError, match="exists; remove it"):
        write(tmp_path / "z", [[1, 2]])


def test_two_writers_of_one_folder(tmp_path: Path) -> None:
    with FolderWriter(tmp_path / "x", tokenizer="t", vocabulary=9) as to:
        to.add(np.array([1]))
        with pytest.raises(BlockingIOError, match="another process"):
            write(tmp_path / "x", [[1]])


def test_pickled(folder: Path) -> None:
    again = pickle.loads(pickle.dumps(TokenShards(folder, 100)))
    assert again.batch([3]).tolist() == [list(range(300, 401))]


def test_demo_is_the_byte_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(f"# {name}")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    folder = demo.demo_shards(tmp_path / "cache")
    assert demo.demo_shards(tmp_path / "cache") == folder
    windows = corpus.ByteWindows(corpus.build(tmp_path / "cache"), 4)
    shards = TokenShards(folder, 4)
    assert shards.batch(range(len(shards))).tolist() == windows.batch(range(len(windows))).tolist()


def test_cache_copies_once_evicts_the_oldest_and_spares_what_is_used(tmp_path: Path) -> None:
    sources = [write(tmp_path / f"s{i}", [[i] * 40000]) for i in range(3)]
    cache = NodeCache(tmp_path / "cache", limit_gib=400000 / (1 << 30))  # room for two
    first = TokenShards(sources[0], 10, cache=cache)
    TokenShards(sources[1], 10, cache=cache).close()
    (tmp_path / "cache" / ".tokens-0.partial").mkdir()
    third = TokenShards(sources[2], 10, cache=cache)
    assert cache.entries() == [first.folder, third.folder]
    assert not list((tmp_path / "cache").glob(".tokens-*"))
    with pytest.raises(OSError, match="raise limit_gib"):
        TokenShards(sources[1], 10, cache=cache)
    inode = first.folder.stat().st_ino
    assert TokenShards(sources[0], 10, cache=cache).folder.stat().st_ino == inode


def test_a_corrupt_source_is_not_cached(folder: Path, tmp_path: Path) -> None:
    path = folder / "00000.tokens"
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    cache = NodeCache(tmp_path / "cache")
    with pytest.raises(ShardError, match="corrupt"):
        TokenShards(folder, 10, cache=cache)
    assert cache.entries() == []


@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet", "arrow"])
def test_convert(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts, source = ["one", "zwei ü"], tmp_path / "source"
    source.mkdir()
    table = pa.table({"body": texts})
    if kind == "txt":
        for i, text in enumerate(texts):
            (source / f"{i}.txt").write_text(text)
    elif kind == "jsonl":
        rows = [json.dumps({"body": text}) for text in texts]
        (source / "a.jsonl").write_text("\n".join(rows) + "\n")
    elif kind == "parquet":
        pq.write_table(table, source / "a.parquet")
    else:
        with pa.OSFile(str(source / "d.arrow"), "wb") as f, pa.ipc.new_stream(f, table.schema) as w:
            w.write_table(table)
        (source / "state.json").write_text('{"_data_files": [{"filename": "d.arrow"}]}')
    out = tmp_path / "out"
    assert convert.main(["convert", str(source), str(out), "--field", "body"]) == 0
    want = "one\nzwei ü\n".encode()
    assert TokenShards(out, len(want) - 1)[0].tolist() == list(want)
    assert convert.main(["verify", str(out)]) == 0
    assert "12 tokens (uint16, bytes, vocabulary 256), 2 documents" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{"a": 1}', "line 1: no field 'text' (there are: a)"),
        ('{"text": "x"}\n{"text": 5}', "line 2: field 'text' must be text (got 5)"),
        ("{", "line 1: not JSON"),
        ('{"text": null}', "no documents"),
    ],
)
def test_convert_refuses(
    tmp_path: Path, text: str, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    assert convert.main(["convert", str(tmp_path / "a.jsonl"), str(tmp_path / "out")]) == 1
    assert want in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
