"""Where the authority is: its name found, and the agent's own connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from trainer_runtime.agent.options import AgentOptions
from trainer_runtime.agentlink import AgentLink
from trainer_runtime.handshake import Secret
from trainer_runtime.protocol import parse_address

_BACKOFF_S = (0.1, 5.0)


async def wait_for_name(
    address: str, timeout: float, stopping: Callable[[], bool], over: asyncio.Event,
    log: Callable[[str], None],
) -> bool:  # fmt: skip
    """Whether DNS knows one of the authorities (host:port[,...]) within `timeout` seconds: the
    name of a pod comes after the pod."""
    until, delay = time.monotonic() + timeout, _BACKOFF_S[0]
    loop = asyncio.get_running_loop()
    names = [parse_address(each) for each in address.split(",")]
    while not stopping():
        for host, port in names:
            with contextlib.suppress(OSError):
                await loop.getaddrinfo(host, port)
                return True
        if time.monotonic() > until:
            return False
        if delay == _BACKOFF_S[0]:
            log(f"waits for the name of the authority, {address}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), delay)
        delay = min(2 * delay, _BACKOFF_S[1])
    return False


def open_link(
    options: AgentOptions, address: str, loop: asyncio.AbstractEventLoop,
    expired: Callable[[str, str], None], log: Callable[[str], None],
) -> AgentLink:  # fmt: skip
    """To the authorities: what this agent knows for certain, and back whom they gave up;
    `expired(name, cause)` is called in the loop's thread."""

    def hear(name: str, cause: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(expired, name, cause)

    link = AgentLink(
        [parse_address(each) for each in address.split(",")], job=options.job,
        agent=options.agent, on_expired=hear, secret=Secret.from_env(), log=log,
    )  # fmt: skip
    link.start()
    return link
