"""The agent's line to the control plane: registration, intents, acknowledgements.

Two background threads: one asks for intents (long poll), one sends what is to be said, in order,
again and again with back-off until it is taken. Nothing here ever blocks the agent. The control
plane proves itself by signing each intent with a key that follows from the job's token; the agent
proves itself by the token. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

WAIT_S = 20
_TIMEOUT_S = 10.0
_BACKOFF_S = (0.5, 30.0)
_MAX_ANSWER = 1 << 20
_MAX_ACKS = 1000
_FINAL = (400, 404, 409, 410, 422)  # the answer to an acknowledgement won't get better


@dataclass(frozen=True, slots=True)
class Intent:
    """What the control plane wants. `seconds` is the time left until its deadline, None if it set
    none (by this machine's clock)."""

    sequence: int
    kind: str
    replicas: tuple[str, ...] | None
    to: int | None
    seconds: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Line:
    """Whom to talk to, and as whom."""

    url: str
    token: str
    job: str
    agent: str
    node: str
    attempt: str

    @classmethod
    def from_env(cls, env: Mapping[str, str], *, job: str, agent: str, node: str) -> Line | None:
        """None without CONCERTINA_URL and CONCERTINA_TOKEN: the agent works alone."""
        url, token = env.get("CONCERTINA_URL", "").rstrip("/"), env.get("CONCERTINA_TOKEN", "")
        attempt = env.get("CONCERTINA_ATTEMPT", "")
        return cls(url, token, job, agent, node, attempt) if url and token else None


def signature(token: str, intent: Mapping[str, Any]) -> str:
    """Hex HMAC-SHA256 with key SHA256(token) over the intent as canonical JSON."""
    signed = {name: value for name, value in intent.items() if name != "signature"}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    key = hashlib.sha256(token.encode()).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def read_intent(raw: Mapping[str, Any], now: datetime | None = None) -> Intent:
    """Raises ValueError naming the field that is wrong."""
    kind, replicas, to, deadline = (raw.get(n) for n in ("kind", "replicas", "to", "deadline"))
    if kind not in ("drain", "resize"):
        raise ValueError(f"kind: must be drain or resize (got {kind!r})")
    names = isinstance(replicas, list) and all(isinstance(each, str) for each in replicas)
    if replicas is not None and not names:
        raise ValueError(f"replicas: must be names or null (got {replicas!r})")
    if kind == "resize" and (not isinstance(to, int) or isinstance(to, bool) or to < 0):
        raise ValueError(f"to: must be a number of replicas (got {to!r})")
    seconds = None
    if deadline is not None:
        try:
            at = datetime.fromisoformat(deadline)
        except (TypeError, ValueError):
            raise ValueError(f"deadline: must be an ISO 8601 time (got {deadline!r})") from None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        seconds = max(0.0, (at - (now or datetime.now(UTC))).total_seconds())
    return Intent(
        sequence=raw["sequence"], kind=kind, replicas=tuple(replicas) if names else None, to=to,
        seconds=seconds, reason=str(raw.get("reason") or ""),
    )  # fmt: skip


class ControlPlane:
    """`on_intent(intent)` is called in a background thread, once an intent, in their order."""

    def __init__(
        self, line: Line, on_intent: Callable[[Intent], None], log: Callable[[str], None]
    ) -> None:
        self.line = line
        self._on_intent, self._log = on_intent, log
        self._started_at = datetime.now(UTC).isoformat()
        self._after = 0
        self._refused: deque[int] = deque(maxlen=1000)
        self._registration: dict[str, Any] | None = None
        self._acks: deque[dict[str, Any]] = deque(maxlen=_MAX_ACKS)
        self._changed = threading.Condition()
        self._registered = threading.Event()
        self._closing = threading.Event()
        self._complained = ""
        # Proxies are for the outside: the control plane is reached directly.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._sender = threading.Thread(target=self._send, name="agent-send", daemon=True)
        self._poller = threading.Thread(target=self._poll, name="agent-poll", daemon=True)

    def start(self) -> None:
        self._sender.start()
        self._poller.start()

    def register(self, replicas: list[dict[str, Any]], elastic: bool | None) -> None:
        """What runs here now; only the newest word is sent. `replicas` are {name, ranks}."""
        line = self.line
        with self._changed:
            self._registration = {
                "job": line.job, "attempt": line.attempt, "agent": line.agent, "node": line.node,
                "replicas": replicas, "elastic": elastic, "started_at": self._started_at,
            }  # fmt: skip
            self._changed.notify_all()

    def ack(self, sequence: int, state: str, reason: str = "", detail: str = "") -> None:
        """`state` is accepted, done or refused."""
        with self._changed:
            self._acks.append(
                {"sequence": sequence, "state": state, "reason": reason, "detail": detail}
            )
            self._changed.notify_all()

    def close(self, timeout: float = 1.5) -> None:
        """Wait a little for what is still to be said; then stop."""
        until = time.monotonic() + timeout
        with self._changed:
            self._changed.wait_for(
                lambda: not self._acks and self._registration is None, until - time.monotonic()
            )
            self._closing.set()
            self._changed.notify_all()
        self._sender.join(max(0.0, until - time.monotonic()))

    # ---- background ------------------------------------------------------------------------

    def _send(self) -> None:
        delay = _BACKOFF_S[0]
        while not self._closing.is_set():
            with self._changed:
                while not self._acks and self._registration is None:
                    if self._closing.is_set():
                        return
                    self._changed.wait()
                registration = self._registration
                ack = self._acks[0] if self._acks and registration is None else None
            if self._tell(registration, ack):
                delay = _BACKOFF_S[0]
                continue
            self._closing.wait(delay * random.uniform(0.8, 1.2))
            delay = min(2 * delay, _BACKOFF_S[1])

    def _tell(self, registration: dict[str, Any] | None, ack: dict[str, Any] | None) -> bool:
        """Whether it is done with: taken, or refused for good."""
        if registration is not None:
            answer, code = self._request("attempts/", registration)
            if code != 200 or answer is None:
                return False
            with self._changed:
                if self._registration is registration:
                    self._registration = None
                self._changed.notify_all()
            self._registered.set()
            return True
        assert ack is not None
        body = {"job": self.line.job, "agent": self.line.agent, **ack}
        _, code = self._request(f"intents/{body.pop('sequence')}/ack/", body)
        if code not in (200, 201, 202, 204, *_FINAL):
            return False
        with self._changed:
            if self._acks and self._acks[0] is ack:
                self._acks.popleft()
            self._changed.notify_all()
        return True

    def _poll(self) -> None:
        self._registered.wait()
        delay = _BACKOFF_S[0]
        while not self._closing.is_set():
            query = urllib.parse.urlencode(
                {
                    "job": self.line.job, "agent": self.line.agent, "after": self._after,
                    "wait": WAIT_S,
                }
            )  # fmt: skip
            asked_at = time.monotonic()
            answer, code = self._request(f"intents/?{query}", None, timeout=WAIT_S + _TIMEOUT_S)
            intents = answer.get("intents") if code == 200 and answer else None
            news = isinstance(intents, list) and sum(self._take(each) for each in intents)
            if news or (intents == [] and time.monotonic() - asked_at > 1):
                delay = _BACKOFF_S[0]
                continue
            # Nothing new at once, or no answer: a server that doesn't wait isn't asked in a circle.
            self._closing.wait(delay * random.uniform(0.8, 1.2))
            delay = min(2 * delay, _BACKOFF_S[1] if intents is None else 2.0)

    def _take(self, raw: Any) -> bool:
        """Whether the intent is new and believed."""
        sequence = raw.get("sequence") if isinstance(raw, dict) else None
        if not isinstance(sequence, int) or sequence <= self._after or sequence in self._refused:
            return False
        said = raw.get("signature")
        genuine = isinstance(said, str) and hmac.compare_digest(
            said.encode(), signature(self.line.token, raw).encode()
        )
        if not genuine:
            # Not passed over: what it hides may still come.
            self._refused.append(sequence)
            self._log(f"intent {sequence} refused: its signature isn't the control plane's")
            self.ack(sequence, "refused", "bad_signature", "signed with another key, or changed")
            return False
        self._after = sequence
        try:
            intent = read_intent(raw)
        except ValueError as error:
            self._log(f"intent {sequence} refused: {error}")
            self.ack(sequence, "refused", "malformed", str(error))
            return True
        self._on_intent(intent)
        return True

    def _request(
        self, path: str, body: dict[str, Any] | None, timeout: float = _TIMEOUT_S
    ) -> tuple[dict[str, Any] | None, int]:
        """The answer and its code; (None, 0) if there was none. Never raises."""
        request = urllib.request.Request(
            f"{self.line.url}/api/v1/agent/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method="GET" if body is None else "POST",
            headers={
                "Content-Type": "application/json", "Accept": "application/json",
                "Authorization": f"Bearer {self.line.token}",
            },
        )  # fmt: skip
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                text = answer.read(_MAX_ANSWER)
                said = json.loads(text) if text.strip() else {}
                self._complained = ""
                return (said if isinstance(said, dict) else {}), answer.status
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(2048)
            self._complain(f"control plane answered {error.code}: {text.decode(errors='replace')}")
            return None, error.code
        except Exception as error:  # whatever it is, training goes on
            self._complain(f"control plane not reached: {error}")
            return None, 0

    def _complain(self, text: str) -> None:
        """Once a kind of trouble, not once a request."""
        kind = text.split(":")[0]
        if kind != self._complained and not self._closing.is_set():
            self._complained = kind
            self._log(text[:500])


def node_name(env: Mapping[str, str] | None = None) -> str:
    """The Kubernetes node if the pod was told it, else the host's name."""
    return (os.environ if env is None else env).get("NODE_NAME") or os.uname().nodename
