"""Reading an authority's callers: lines of bounded length, messages of the right shape."""

from __future__ import annotations

import asyncio
from typing import Any

from trainer_runtime.protocol import ProtocolError, from_line

_CHUNK = 1 << 16
_STATE: dict[str, type] = {"epoch": int, "step": int, "live": bool}
_REQUIRED: dict[str, dict[str, type]] = {
    "open": {"job": str, "nonce": str},
    "hello": {"job": str, "member": str, "name": str, "parked": bool, "state_epoch": int, **_STATE},
    "beat": {"n": int, "counter": int, "phase": str},
    "park": _STATE,
    "leave": {},
    "bye": {"reason": str},
}
_OPTIONAL: dict[str, type] = {
    "lane": int, "lanes": int, "min_replicas": int, "quorum": list, "key": str, "term": int,
    "term_of": str, "epoch_floor": int, "checkpoint_step": int, "leaving": bool, "address": str,
    "step": int, "epoch": int, "candidates": int,
}  # fmt: skip
_OF_AGENTS: dict[str, dict[str, type]] = {
    "hello": {"job": str, "name": str, "names": list},
    "names": {"names": list},
    "dead": {"name": str, "code": int, "epoch": int},
    "drain": {"names": list},
}
MAX_LANES = 4096


class Lines:
    """Lines of a connection. Unlike `readline`, each with a limit of its own."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()

    async def next(self, limit: int) -> bytes | None:
        """The next line, None at the end. Raises ProtocolError for one above `limit` bytes."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            data = await self._reader.read(_CHUNK) if searched <= limit else b""
            if not data and searched <= limit:
                return None
            if not data:
                break
            self._buffer += data
        if end < 0 or end > limit:
            raise ProtocolError(f"line: longer than the {limit} bytes that are read here")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def message(self, limit: int) -> dict[str, Any] | None:
        line = await self.next(limit)
        return None if line is None else from_line(line)


def check(message: dict[str, Any], role: str = "replica") -> dict[str, Any]:
    """Raises ProtocolError naming the field of a caller's message that is missing or wrong."""
    known = _OF_AGENTS if role == "agent" else _REQUIRED
    required = known.get(message["kind"])
    if required is None:
        raise ProtocolError(f"kind: {message['kind']!r} is not known")
    given = {name: kind for name, kind in _OPTIONAL.items() if message.get(name) is not None}
    for name, kind in (given | required).items():
        if not isinstance(message.get(name), kind):
            raise ProtocolError(f"{name}: must be {kind.__name__} (got {message.get(name)!r})")
    for name in ("quorum", "names"):
        if not all(isinstance(each, str) for each in message.get(name) or ()):
            raise ProtocolError(f"{name}: must be a list of texts")
    lane, lanes = message.get("lane", 0), message.get("lanes", 1)
    if not 0 <= lane < lanes <= MAX_LANES:
        raise ProtocolError(f"lane: must be one of 0 to lanes - 1 (got {lane} of {lanes})")
    return message
