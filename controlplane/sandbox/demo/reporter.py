"""Sends a simulated trainer's messages to the control plane, as a real trainer's client does.

Bounded buffer, sent again until it is taken; losing the control plane costs nothing but charts.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainer_runtime import wire

logger = logging.getLogger("demo.reporter")
_MOST_KEPT, _MOST_SENT = 10_000, 500
_FIRST_WAIT, _LAST_WAIT = 1.0, 15.0
_TIMEOUT = 5.0
# proxies are for the outside: the control plane is reached directly
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Target:
    """Where a job reports to: the values of its Secret `<job>-concertina`."""

    url: str
    token: str
    job: str


class Refused(Exception):
    """The control plane won't take a batch: `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def post(target: Target, body: bytes) -> None:
    """Send one envelope. OSError when nobody answers, Refused for any answer but 2xx."""
    request = urllib.request.Request(
        f"{target.url.rstrip('/')}/api/v1/telemetry/",
        data=body,
        method="POST",
        headers={"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"},
    )
    try:
        with _OPENER.open(request, timeout=_TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read(300).decode(errors="replace")) from error


class Reporter:
    """One job's buffer and the thread that empties it. `find_target` reads the job's Secret and
    returns None while it isn't there."""

    def __init__(
        self,
        name: str,
        attempt: str,
        find_target: Callable[[], Target | None],
        send: Callable[[Target, bytes], None] = post,
    ) -> None:
        self.name = name
        self._attempt = attempt
        self._find_target = find_target
        self._send = send
        self._target: Target | None = None
        self._buffer: deque[wire.Message] = deque(maxlen=_MOST_KEPT)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._wait = 0.0

    def add(self, messages: Iterable[wire.Message]) -> None:
        """Buffer messages; the oldest fall out when the buffer is full."""
        before = len(self._buffer)
        self._buffer.extend(messages)
        if len(self._buffer) != before or len(self._buffer) == _MOST_KEPT:
            self._wake.set()

    @property
    def waiting(self) -> int:
        """Messages that haven't been taken yet."""
        return len(self._buffer)

    def run(self) -> None:
        """Send until `stop`."""
        while not self._stopped.is_set():
            self._wake.wait()
            self._wake.clear()
            while self._buffer and not self._stopped.is_set():
                if not self.send_once(time.time()):
                    self._wait = min(max(self._wait * 2, _FIRST_WAIT), _LAST_WAIT)
                    self._stopped.wait(self._wait)

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()

    def send_once(self, now: float) -> bool:
        """Send one batch; whether it was taken (or can never be)."""
        batch = list(self._buffer)[:_MOST_SENT]
        try:
            target = self._target = self._target or self._find_target()
            if target is None:
                return False
            envelope = wire.Envelope(
                job=target.job, attempt=self._attempt, sent_at=now, messages=tuple(batch)
            )
            self._send(target, wire.encode(envelope))
        except Refused as error:
            logger.warning("%s: %s", self.name, error)
            if error.status in (401, 403, 404):  # the token was rotated, or the job made anew
                self._target = None
                return False
            if error.status == 429 or error.status >= 500:
                return False
        except OSError as error:
            logger.info("%s: the control plane doesn't answer (%s)", self.name, error)
            return False
        self._drop(batch[-1].seq)
        self._wait = 0.0
        return True

    def _drop(self, upto: int) -> None:
        while self._buffer and self._buffer[0].seq <= upto:
            self._buffer.popleft()
