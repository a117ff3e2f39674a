"""Who speaks: both ends of a connection to the authority prove that they know the job's secret.

Standard library only. The caller opens with a nonce, the authority answers with its own and a
proof over both, the caller's hello carries its proof over both. A proof is HMAC-SHA256 under a key
that is derived from the secret for one job, over the role, the name and the nonces: it can't be
replayed, turned round or used for another job or member. What follows on the connection isn't
encrypted: who can change packets on the way needs a network policy or a tunnel against it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainer_runtime.protocol import PROTOCOL, ProtocolError, from_line, to_line

_SALT = b"concertina membership authority"
_NONCE_BYTES = 16
_MAX_ANSWER = 64 * 1024


class HandshakeError(ProtocolError):
    """The other end can't prove what it has to, or refused; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Secret:
    """`strict`: an authority that proves nothing is refused. It isn't when the secret was only
    derived from the control plane's token, which an authority needn't have been given."""

    value: bytes
    strict: bool = True

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Secret | None:
        """`CONCERTINA_SECRET`, else `CONCERTINA_TOKEN`; None if neither is set."""
        env = os.environ if env is None else env
        for name in ("CONCERTINA_SECRET", "CONCERTINA_TOKEN"):
            if env.get(name):
                return cls(env[name].encode(), strict=name == "CONCERTINA_SECRET")
        return None


def job_key(secret: Secret, job: str) -> bytes:
    """HKDF-SHA256 (RFC 5869, one block) with the job as its info: the key of one job's proofs."""
    extracted = hmac.digest(_SALT, secret.value, hashlib.sha256)
    return hmac.digest(extracted, b"job:" + job.encode() + b"\x01", hashlib.sha256)


def new_nonce() -> str:
    return secrets.token_hex(_NONCE_BYTES)


@dataclass(frozen=True, slots=True)
class Handshake:
    """One connection's: the job, both nonces, and the secret (None: nothing is proven)."""

    job: str
    caller_nonce: str
    authority_nonce: str
    secret: Secret | None

    def proof(self, role: str, name: str = "") -> str:
        """Hex; empty without a secret. `role` is authority, replica or agent."""
        if self.secret is None:
            return ""
        fields = (role, self.job, name, self.caller_nonce, self.authority_nonce)
        # Each with its length, so that no two different lists read the same.
        text = b"".join(f"{len(each.encode())}:{each}".encode() for each in fields)
        return hmac.new(job_key(self.secret, self.job), text, hashlib.sha256).hexdigest()

    def proven(self, claimed: Any, role: str, name: str = "") -> bool:
        """Whether `claimed` is that proof; always, without a secret."""
        if self.secret is None:
            return True
        return isinstance(claimed, str) and hmac.compare_digest(
            claimed.encode(), self.proof(role, name).encode()
        )


def open_connection(
    connection: socket.socket, job: str, secret: Secret | None
) -> tuple[Handshake, dict[str, Any]]:
    """The caller's side, blocking under the socket's time-out: the handshake and the challenge.
    Raises HandshakeError if the authority refuses or can't prove the secret, OSError."""
    nonce = new_nonce()
    connection.sendall(to_line("open", protocol=PROTOCOL, job=job, nonce=nonce))
    answer = from_line(_read_line(connection))
    if answer["kind"] == "refused":
        raise HandshakeError(f"{answer.get('message')} (this side speaks protocol {PROTOCOL})")
    if answer["kind"] != "challenge" or not isinstance(answer.get("nonce"), str):
        raise HandshakeError(f"no challenge but {answer['kind']!r}: not an authority")
    shaken, claimed = Handshake(job, nonce, answer["nonce"], secret), answer.get("proof")
    if secret is not None and not secret.strict and not claimed:
        return replace(shaken, secret=None), answer
    if not shaken.proven(claimed, "authority"):
        why = "has another secret" if claimed else "has none"
        raise HandshakeError(
            f"the authority can't prove the secret of job {job}: it {why}; give both sides the "
            "same CONCERTINA_SECRET (or CONCERTINA_TOKEN)"
        )
    return shaken, answer


def _read_line(connection: socket.socket) -> bytes:
    """One line; nothing after it is taken off the socket."""
    line = b""
    while not line.endswith(b"\n"):
        if len(line) > _MAX_ANSWER:
            raise HandshakeError("an endless line instead of a challenge: not an authority")
        peeked = connection.recv(4096, socket.MSG_PEEK)
        if not peeked:
            raise ConnectionError("the authority closed the connection")
        end = peeked.find(b"\n")
        line += connection.recv(end + 1 if end >= 0 else len(peeked))
    return line
