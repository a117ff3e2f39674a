"""Reports to the control plane: bounded, in the background, never in the way of training.

Messages of `wire.py` go to CONCERTINA_URL/api/v1/telemetry/ with the job's token. Without
CONCERTINA_URL nothing is sent and nothing kept. While the control plane is away the newest messages
wait in a bounded buffer; the oldest are dropped and counted. Standard library only.
"""

from __future__ import annotations

import math
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer_runtime.wire import Envelope, Message, WireError, encode

# Sequence numbers rise over changes of the reporter too: the quorum's number stands above the
# reporter's own count.
_SEQUENCES_A_QUORUM = 1 << 24


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """Times in seconds. `capacity` messages wait at most; `batch` go in one request."""

    url: str = ""
    token: str = ""
    job: str = ""
    capacity: int = 2000
    batch: int = 200
    timeout: float = 5.0
    backoff: tuple[float, float] = (0.5, 15.0)

    @classmethod
    def from_env(cls) -> TelemetryOptions:
        return cls(
            url=os.environ.get("CONCERTINA_URL", "").rstrip("/"),
            token=os.environ.get("CONCERTINA_TOKEN", ""),
            job=os.environ.get("CONCERTINA_JOB", ""),
        )


@dataclass(slots=True)
class Counts:
    sent: int = 0
    dropped: int = 0  # the buffer was full
    refused: int = 0  # the control plane said that it can't take them
    failures: int = 0  # requests that came to nothing


class Telemetry:
    """`report` only appends to a buffer. `attempt` is set once it is known, before reports."""

    def __init__(self, options: TelemetryOptions, log: Callable[[str], None] | None = None) -> None:
        self.options = options
        self.attempt = ""
        self.counts = Counts()
        self._log = log or (lambda text: print(text, file=sys.stderr, flush=True))
        self._sequence = -1
        self._buffer: deque[Message] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._give_up_at = math.inf
        self._complained = ""
        # Proxies are for the outside: the control plane is reached directly.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._thread: threading.Thread | None = None

    @property
    def enabled(self) -> bool:
        return bool(self.options.url and self.options.job)

    def report(self, kind: type[Message], *, quorum: int, **values: Any) -> None:
        """Queue a message. Numbers that aren't finite become unknown. Never raises or blocks."""
        if not self.enabled:
            return
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                values[name] = None
        with self._changed:
            self._sequence = max(self._sequence + 1, quorum * _SEQUENCES_A_QUORUM)
            self._buffer.append(kind(seq=self._sequence, at=time.time(), **values))
            while len(self._buffer) > self.options.capacity:
                self._buffer.popleft()
                self.counts.dropped += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, timeout: float = 1.5) -> None:
        """Send what can still be sent within `timeout` seconds, then stop."""
        with self._changed:
            self._closing = True
            self._give_up_at = time.monotonic() + timeout
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout + 0.5)

    # ---- background ------------------------------------------------------------------------

    def _run(self) -> None:
        delay = self.options.backoff[0]
        while (batch := self._next()) is not None:
            if self._post(batch):
                delay = self.options.backoff[0]
                continue
            self.counts.failures += 1
            with self._changed:
                if self._closing and time.monotonic() + delay > self._give_up_at:
                    return
                self._changed.wait_for(lambda: self._closing, delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, self.options.backoff[1])

    def _next(self) -> list[Message] | None:
        with self._changed:
            while not self._buffer:
                if self._closing:
                    return None
                self._changed.wait()
            if time.monotonic() > self._give_up_at:
                return None
            return [self._buffer[i] for i in range(min(len(self._buffer), self.options.batch))]

    def _post(self, batch: list[Message]) -> bool:
        """Whether the batch is done with: taken, or refused for good."""
        try:
            body = encode(
                Envelope(
                    job=self.options.job, attempt=self.attempt, sent_at=time.time(),
                    messages=tuple(batch),
                )
            )  # fmt: skip
        except WireError as error:
            return self._done(batch, refused=f"not sent: {error}")
        request = urllib.request.Request(
            f"{self.options.url}/api/v1/telemetry/", data=body, method="POST",
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {self.options.token}",
            },
        )  # fmt: skip
        left = max(0.1, min(self.options.timeout, self._give_up_at - time.monotonic()))
        try:
            with self._opener.open(request, timeout=left) as answer:
                answer.read()
            return self._done(batch)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(2048).decode(errors="replace")
            if error.code in (400, 413, 415, 422):
                return self._done(batch, refused=f"refused with {error.code}: {said}")
            self._complain(f"control plane answered {error.code}: {said}")
        except Exception as error:  # whatever it is, training goes on
            self._complain(f"control plane not reached: {error}")
        return False

    def _done(self, batch: list[Message], *, refused: str = "") -> bool:
        with self._changed:
            last = batch[-1].seq
            while self._buffer and self._buffer[0].seq <= last:
                self._buffer.popleft()
            if refused:
                self.counts.refused += len(batch)
            else:
                self.counts.sent += len(batch)
        if refused:
            self._complain(refused)
        else:
            self._complained = ""
        return True

    def _complain(self, text: str) -> None:
        """Once a kind of trouble, not once a request."""
        kind = text.split(":")[0]
        if kind != self._complained:
            self._complained = kind
            self._log(f"telemetry: {text[:500]}")
