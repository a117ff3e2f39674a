"""Is a process healthy? Each check is a small object whose `passes()` answers within a second.

The same checks serve the compose file's test, so a health check there means what it means here.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ssl import SSLContext

ANSWER_SECONDS = 1.0


class Check(Protocol):
    async def passes(self, since: float) -> bool:
        """`since`: unix time at which the process was started; older signs of life don't count."""
        ...


@dataclass(frozen=True, slots=True)
class RedisPing:
    """PING answered with PONG; -LOADING (it still reads its file) is not healthy yet."""

    port: int
    host: str = "127.0.0.1"

    async def passes(self, since: float) -> bool:
        return (await exchange(self.host, self.port, b"PING\r\n")).startswith(b"+PONG")


@dataclass(frozen=True, slots=True)
class HttpOk:
    """GET answers with a status of 200 to 299. For https, `authority` is the CA's file."""

    url: str
    authority: Path | None = None

    async def passes(self, since: float) -> bool:
        parts = urlsplit(self.url)
        secure = parts.scheme == "https"
        host, port = parts.hostname or "127.0.0.1", parts.port or (443 if secure else 80)
        request = (
            f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n"
        )
        if secure and self.authority is not None and not self.authority.exists():
            return False  # made at the first start
        context = trusting(self.authority) if secure else None
        answer = await exchange(host, port, request.encode(), context)
        return answer.startswith(b"HTTP/1.1 2") or answer.startswith(b"HTTP/1.0 2")


@dataclass(frozen=True, slots=True)
class FreshFile:
    """The process writes this file when it works, and again and again: at most `age_s` old."""

    path: Path
    age_s: float = 30.0

    async def passes(self, since: float) -> bool:
        try:
            written = self.path.stat().st_mtime
        except OSError:
            return False
        return written >= since - 0.05 and written >= time.time() - self.age_s


@dataclass(frozen=True, slots=True)
class Alive:
    """No other sign than that it still runs after `seconds`."""

    seconds: float = 0.5

    async def passes(self, since: float) -> bool:
        return time.time() - since >= self.seconds


@lru_cache(maxsize=8)
def trusting(authority: Path | None) -> SSLContext:
    """Loaded only where TLS is used: it costs 20 ms."""
    import ssl

    return ssl.create_default_context(cafile=authority)


async def exchange(
    host: str, port: int, request: bytes, context: SSLContext | None = None
) -> bytes:
    """Send, and return the first bytes of the answer; empty when there is none in time."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(request)
                await writer.drain()
                return await reader.read(512)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
