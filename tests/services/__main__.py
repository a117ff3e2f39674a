"""Run one command with servers of its own, named in its environment as the settings read them.

python -m tests.services [--valkey] [--postgres] -- COMMAND...
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys

from tests.services import PostgresCluster, ValkeyServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.services", description=__doc__)
    parser.add_argument("--valkey", action="store_true", help="start Valkey, set REDIS_URL")
    parser.add_argument(
        "--postgres", action="store_true", help="start PostgreSQL, set DATABASE_URL"
    )
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    # Ctrl-C reaches the command too (same process group); it ends, and then so do we.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    environment = dict(os.environ)
    with contextlib.ExitStack() as stack:
        if options.valkey:
            environment["REDIS_URL"] = stack.enter_context(ValkeyServer()).url
        if options.postgres:
            environment["DATABASE_URL"] = stack.enter_context(PostgresCluster()).url
        with subprocess.Popen(
            options.command,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        ) as process:
            try:
                return process.wait()
            except SystemExit:
                process.terminate()
                process.wait()
                raise


if __name__ == "__main__":
    sys.exit(main())
