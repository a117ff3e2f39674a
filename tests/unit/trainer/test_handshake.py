"""Proofs between a caller and the authority, and what of the store is swept."""

from __future__ import annotations

import asyncio

import pytest

from trainer_runtime.handshake import Handshake, Secret, job_key
from trainer_runtime.lines import Lines
from trainer_runtime.protocol import ProtocolError, parse_addresses
from trainer_runtime.storehost import stale

S = Secret(b"s3")


@pytest.mark.parametrize(
    ("env", "want"),
    [
        ({}, None),
        ({"CONCERTINA_SECRET": ""}, None),
        ({"CONCERTINA_TOKEN": "t"}, Secret(b"t", strict=False)),
        ({"CONCERTINA_TOKEN": "t", "CONCERTINA_SECRET": "s"}, Secret(b"s")),
    ],
)
def test_secret_from_env(env: dict[str, str], want: Secret | None) -> None:
    assert Secret.from_env(env) == want


def test_key_is_hkdf() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    salt = b"concertina membership authority"
    assert job_key(S, "j") == HKDF(SHA256(), 32, salt, b"job:j").derive(b"s3")


@pytest.mark.parametrize(
    ("theirs", "role", "name"),
    [
        (Handshake("j", "1", "2", Secret(b"other")), "replica", "a"),
        (Handshake("k", "1", "2", S), "replica", "a"),
        (Handshake("j", "2", "1", S), "replica", "a"),  # turned round
        (Handshake("j", "1", "3", S), "replica", "a"),  # of another connection
        (Handshake("j", "1", "2", S), "agent", "a"),
        (Handshake("j", "1", "2", S), "authority", ""),
        (Handshake("j", "1", "2", S), "replica", "b"),
        (Handshake("j", "1", "2", None), "replica", "a"),
    ],
)
def test_only_the_right_proof_proves(theirs: Handshake, role: str, name: str) -> None:
    mine = Handshake("j", "1", "2", S)
    assert mine.proven(mine.proof("replica", "a"), "replica", "a")
    assert not mine.proven(theirs.proof(role, name), "replica", "a")


@pytest.mark.parametrize("claimed", [None, "", 3, "é", ["x"]])
def test_what_is_no_proof_proves_nothing(claimed: object) -> None:
    assert not Handshake("j", "1", "2", S).proven(claimed, "replica", "a")


def test_fields_of_a_proof_can_not_be_shifted() -> None:
    one, other = Handshake("j", "1", "2", S), Handshake("j", "11", "2", S)
    assert one.proof("replica", "a1") != other.proof("replica", "a")


@pytest.mark.parametrize(
    ("data", "limit", "want"),
    [(b"abc\nrest", 3, b"abc"), (b"\n", 3, b""), (b"ab", 3, None), (b"", 3, None)],
)
def test_line(data: bytes, limit: int, want: bytes | None) -> None:
    assert asyncio.run(read(data, limit)) == want


@pytest.mark.parametrize("data", [b"abcd\n", b"abcd", b"x" * 500_000])
def test_long_line_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="longer than the 3 bytes"):
        asyncio.run(read(data, 3))


async def read(data: bytes, limit: int) -> bytes | None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await Lines(reader).next(limit)


def test_only_keys_of_earlier_epochs_of_the_job_are_swept() -> None:
    keys = ["j/i/1/a", "j/i/9/a", "j/i/10/a/b", "j/i/x", "jj/i/1/a", "k/i/1/a", "j/i2/1/a"]
    assert stale(keys, "j/i/", 10) == ["j/i/1/a", "j/i/9/a"]
    assert stale(keys, "j/i/", None) == ["j/i/1/a", "j/i/9/a", "j/i/10/a/b"]


def test_addresses() -> None:
    assert parse_addresses("a:1, b:2") == [("a", 1), ("b", 2)]
    for text in ("a:1,", "a:1,a:1", ""):
        with pytest.raises(ValueError, match="authority: "):
            parse_addresses(text, what="authority")
