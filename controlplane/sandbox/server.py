"""Run the API and the components in one loop until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import uvicorn

from controlplane.sandbox.api.app import create_app
from controlplane.sandbox.clock import Clock
from controlplane.sandbox.store import Store

logger = logging.getLogger("sandbox")
Component = Callable[[Store, Clock], Awaitable[None]]
_RESTART_SECONDS = 1.0


class PortTaken(Exception):
    """The address can't be listened on; the message is for the user."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; PortTaken with one clear sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named, because asyncio sets TCP_NODELAY only on sockets whose protocol says TCP; without it
    # each answer waits 40 ms for a delayed acknowledgement
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(512)
    except OSError as error:
        sock.close()
        raise PortTaken(
            f"can't listen on {host}:{port} ({error.strerror}): stop what uses that port, or "
            "choose another with --port (or CONCERTINA_SANDBOX_PORT)"
        ) from error
    sock.setblocking(False)
    return sock


class Server:
    """The HTTP server and the components on one store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        token: str,
        sock: socket.socket,
        components: Sequence[tuple[str, Component]],
        *,
        certificate: Path,
        key: Path,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sock = sock
        self._components = components
        config = uvicorn.Config(
            create_app(store, token),
            ssl_certfile=certificate,
            ssl_keyfile=key,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=120,
        )
        self._uvicorn = uvicorn.Server(config)
        # signals are ours: uvicorn would wait for its streams before anything else ends
        self._uvicorn.install_signal_handlers = lambda: None  # type: ignore[attr-defined]

    def stop(self) -> None:
        """End the watches and stop serving; `run` returns soon after."""
        self._store.end_watches()
        self._uvicorn.should_exit = True

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`; `ready` is called once requests are answered."""
        loop = asyncio.get_running_loop()
        tasks = [
            asyncio.create_task(self._keep_running(name, component), name=name)
            for name, component in self._components
        ]
        serving = asyncio.create_task(self._uvicorn._serve([self._sock]))
        try:
            while not self._uvicorn.started and not serving.done():
                await asyncio.sleep(0.01)
            if not serving.done():
                ready()
            await serving
        finally:
            for task in tasks:
                task.cancel()
            # a component may need a moment to end its processes
            await asyncio.wait(tasks, timeout=3.0) if tasks else None
            self._sock.close()
            assert loop.is_running()

    async def _keep_running(self, name: str, component: Component) -> None:
        """A component that raises is logged and started again."""
        while True:
            try:
                await component(self._store, self._clock)
                return
            except Exception:
                logger.exception("the %s stopped with an error; it starts again", name)
                await asyncio.sleep(_RESTART_SECONDS)


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM and SIGINT (from inside the running loop)."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
