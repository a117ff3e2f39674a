"""`python -m controlplane.sandbox`: a Kubernetes API with emulated nodes, on this machine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import tempfile
from pathlib import Path

from controlplane.sandbox import certificates, kubeconfig
from controlplane.sandbox.clock import SystemClock
from controlplane.sandbox.journal import DataError, Journal
from controlplane.sandbox.server import Component, PortTaken, Server, listen, stop_on_signals
from controlplane.sandbox.store import Store


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="controlplane.sandbox", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8001, help="port to listen on (0: any free)")
    parser.add_argument("--data", type=Path, help="folder for the state (default: memory only)")
    parser.add_argument("--kubeconfig", type=Path, help="where to write a kubeconfig (mode 600)")
    parser.add_argument("--ready-file", type=Path, help="written with the address once serving")
    parser.add_argument(
        "--nodes", default="", help='nodes to create at the first start: "demo", or none'
    )
    parser.add_argument(
        "--history", type=int, default=4096, help="changes a kind that a watch can resume over"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="leave a component out (repeatable; all: only the API)",
    )
    return parser.parse_args(argv)


def chosen(without: list[str], folder: Path) -> list[tuple[str, Component]]:
    """The components to run; ValueError for a name that none of them has."""
    if "all" in without:
        return []
    from controlplane.sandbox.components import components

    found = components(folder)
    names = [name for name, _ in found]
    for name in without:
        if name not in names:
            raise ValueError(f"--without {name!r} is none of {', '.join(names)}, all")
    return [(name, run) for name, run in found if name not in without]


async def serve(options: argparse.Namespace, store: Store, folder: Path) -> None:
    """Serve until a signal; `folder` holds the token and the certificate."""
    token = kubeconfig.token_from(folder)
    authority, certificate, key = certificates.ensure(folder, options.host)
    sock = listen(options.host, options.port)
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"https://{host}:{sock.getsockname()[1]}"
    components = chosen(options.without, folder)
    server = Server(store, store.clock, token, sock, components, certificate=certificate, key=key)
    stop_on_signals(server.stop)
    if options.nodes:
        from controlplane.sandbox.components import populate

        populate(store, options.nodes)
    if options.kubeconfig:
        kubeconfig.write(options.kubeconfig, address, token, authority.read_bytes())

    def ready() -> None:
        print(f"sandbox cluster on {address}", flush=True)
        if options.ready_file:
            kubeconfig.write_private(options.ready_file, address + "\n")

    await server.run(ready)


def main(argv: list[str] | None = None) -> int:
    """Run; 0 after a signal, 2 when it can't start."""
    options = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        journal = Journal(options.data) if options.data else None
        store = Store(clock=SystemClock(), journal=journal, history=options.history)
    except (DataError, OSError) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="sandbox-") as temporary:
            asyncio.run(serve(options, store, options.data or Path(temporary)))
    except (PortTaken, ValueError, OSError) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 2
    finally:
        store.close()
        if options.ready_file:
            with contextlib.suppress(FileNotFoundError):
                options.ready_file.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
